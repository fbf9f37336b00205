"""IBM MQ: queue managers defined by MQSC, name resolution, and routes over several managers."""
