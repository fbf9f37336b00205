"use strict";

const SETTLED = 100; // milliseconds, some more than htmx takes

// Times in the reader's zone. The server writes UTC, which stays in the title.
function localTimes(root) {
  const format = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "medium" });
  const hour = { weekday: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  const shortFormat = new Intl.DateTimeFormat("en", hour);
  const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
  for (const element of root.querySelectorAll("[datetime]")) {
    const time = new Date(element.getAttribute("datetime"));
    if (isNaN(time)) continue;
    if (!("relative" in element.dataset)) {
      element.textContent = ("hour" in element.dataset ? shortFormat : format).format(time);
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
  source.addEventListener("changed", () => {
    isBehind = true;
    setTimeout(catchUp, 200);
  });
  source.onopen = () => {
    connection.textContent = "";
    catchUp();
  };
  source.onerror = () => (connection.textContent = connection.dataset.lost);
}

// Asks again, once the page is looked at and the answer before is there: that one may be older.
// After an answer it rests for as long as that took, and until what was swapped in has settled.
function catchUp() {
  if (!isBehind || document.hidden || askedAt) return;
  const rest = restsUntil - performance.now();
  if (rest > 0) {
    setTimeout(catchUp, rest);
    return;
  }
  isBehind = false;
  document.body.dispatchEvent(new Event("changed"));
}

function asked(event) {
  if (event.detail.target?.id === "live") askedAt = performance.now();
}

function answered(event) {
  if (event.detail.target?.id !== "live") return;
  const now = performance.now();
  restsUntil = now + Math.max(SETTLED, now - askedAt);
  askedAt = 0;
  catchUp();
}

// What looks the same stays: a selection, the focus. Only the times move on. A list that was never
// there shows its error; others stay as they were.
function takeAnswer(event) {
  const answer = event.detail;
  const { id } = answer.target;
  if (id !== "live" && id !== "failures") return;
  const page = new DOMParser().parseFromString(answer.xhr.responseText, "text/html");
  const fresh = page.getElementById(id)?.innerHTML;
  const withoutTimes = (text) => text.replace(/<time[^>]*>[^<]*<\/time>/g, "");
  if (answer.isError) {
    if (!answer.target.ariaBusy) return;
    if (fresh === undefined) {
      answer.target.textContent = `${answer.xhr.status} ${answer.xhr.statusText}`;
      answer.target.ariaBusy = "false";
    }
    answer.isError = false;
    answer.shouldSwap = fresh !== undefined;
  } else if (fresh === undefined) {
    answer.shouldSwap = false;
    location.reload(); // the session ended
  } else if (withoutTimes(fresh) === withoutTimes(shown[id])) answer.shouldSwap = false;
  else shown[id] = fresh;
  opened = [...answer.target.querySelectorAll("details[open]")].map((details) => details.id);
}

// What was open stays open. A list that came late is where the reader was, or the address leads.
function afterSwap(event) {
  for (const id of opened.filter(Boolean)) document.getElementById(id)?.setAttribute("open", "");
  localTimes(document);
  if (!isLate || event.detail.target.id !== "live") return;
  isLate = false;
  const place = location.hash && document.getElementById(location.hash.slice(1));
  if (place) place.scrollIntoView();
  else if (history.state?.scrolled) scrollTo(0, history.state.scrolled);
}

function keys(event) {
  const isTyping = event.target.closest("input, textarea, select");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    const search = document.getElementById("search");
    if (search) {
      event.preventDefault();
      search.closest("details").open = true;
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

const live = () => document.getElementById("live");
const shown = { live: live()?.innerHTML ?? "", failures: "" };
let isLate = live()?.ariaBusy === "true";
let isBehind = false;
let askedAt = 0; // 0: no question is under way
let restsUntil = 0;
let opened = [];
document.body.addEventListener("htmx:beforeSwap", takeAnswer);
document.body.addEventListener("htmx:afterSwap", afterSwap);
document.body.addEventListener("htmx:beforeRequest", asked);
document.body.addEventListener("htmx:afterRequest", answered);
document.body.addEventListener("htmx:sendError", () => (isBehind ||= live()?.ariaBusy === "true"));
document.addEventListener("visibilitychange", catchUp);
addEventListener("pagehide", () => history.replaceState({ scrolled: scrollY }, ""));
localTimes(document);
setInterval(() => localTimes(document), 10000);
document.addEventListener("keydown", keys);
document.getElementById("theme").addEventListener("click", otherTheme);
follow();
