// Before the first paint, so that a page never flashes in the other colours.
const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;
