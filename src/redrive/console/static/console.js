"use strict";

// Times in the reader's zone. The server writes UTC, which stays in the title.
function localTimes(root) {
  const language = document.documentElement.lang;
  const format = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "medium" });
  const relative = new Intl.RelativeTimeFormat(language, { numeric: "auto", style: "short" });
  for (const element of root.querySelectorAll("time")) {
    const time = new Date(element.dateTime);
    if (isNaN(time)) continue;
    if (!("relative" in element.dataset)) {
      element.textContent = format.format(time);
      continue;
    }
    const seconds = (time - Date.now()) / 1000;
    const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
    const [unit, length] = units.find(([, size]) => Math.abs(seconds) >= size) ?? units[3];
    element.textContent = relative.format(Math.trunc(seconds / length), unit);
  }
}

// The job changed: parts of the page that follow it ask for themselves again.
function follow() {
  const connection = document.getElementById("connection");
  const source = new EventSource(`/live?seen=${document.body.dataset.seen}`);
  let waiting = false;
  source.addEventListener("changed", () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => {
      waiting = false;
      if (!document.hidden) document.body.dispatchEvent(new Event("changed"));
    }, 200);
  });
  source.onopen = () => (connection.textContent = "");
  source.onerror = () => (connection.textContent = connection.dataset.lost);
}

// What looks the same stays: a selection, an open part, the focus. Only the times move on.
function keepWhatIsTheSame(event) {
  const page = new DOMParser().parseFromString(event.detail.xhr.responseText, "text/html");
  const fresh = page.getElementById("live")?.innerHTML;
  const withoutTimes = (text) => text?.replace(/<time[^>]*>[^<]*<\/time>/g, "");
  if (fresh !== undefined && withoutTimes(fresh) === withoutTimes(shown)) event.detail.shouldSwap = false;
  else shown = fresh;
}

function keys(event) {
  const isTyping = event.target.closest("input, textarea, select");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    const search = document.getElementById("search");
    if (search) {
      event.preventDefault();
      search.focus();
    }
    return;
  }
  const page = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (page) page.click();
}

function otherTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
}

let shown = document.getElementById("live")?.innerHTML;
document.body.addEventListener("htmx:beforeSwap", keepWhatIsTheSame);
localTimes(document);
setInterval(() => localTimes(document), 10000);
document.body.addEventListener("htmx:afterSwap", () => localTimes(document));
document.addEventListener("keydown", keys);
document.getElementById("theme").addEventListener("click", otherTheme);
follow();
