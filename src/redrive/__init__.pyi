from redrive.frames import RulesTable as RulesTable
from redrive.frames import dead_letters as dead_letters
from redrive.frames import read_table as read_table
from redrive.library import Job as Job
from redrive.library import Summary as Summary
from redrive.library import ledger as ledger
from redrive.library import run_once as run_once
from redrive.library import session as session
from redrive.library import start as start

__version__: str
