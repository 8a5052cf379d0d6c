// Runs in <head> before the first paint, so that the page never flashes in the wrong theme.
// The key is also Django admin's: one choice holds for both. Its "auto" means: ask the system.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch {
    // Storage is off: the system's theme holds.
  }
})();
