// Everything here is an extra: each page works without it.

const stored = {
  get(key) {
    try {
      return localStorage.getItem(key);
    } catch {
      return null; // storage is off: the choice lasts as long as the page
    }
  },
  set(key, value) {
    try {
      localStorage.setItem(key, value);
    } catch {
      // as above
    }
  },
};

// --- theme ------------------------------------------------------------------------------------------

const root = document.documentElement;
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemIsDark.matches);

function showTheme() {
  for (const button of document.querySelectorAll("[data-theme-toggle]")) {
    button.setAttribute("aria-pressed", String(isDark()));
  }
}

function toggleTheme() {
  root.dataset.theme = isDark() ? "light" : "dark";
  stored.set("theme", root.dataset.theme);
  showTheme();
}

// --- keys: j k / ? c --------------------------------------------------------------------------------

// WCAG 2.1.4: single-key shortcuts can be switched off (speech input and stray keys trigger them).
let keysAreOn = stored.get("keys") !== "off";

const hits = () => [...document.querySelectorAll("[data-hit]")];
const focusedHit = () => document.activeElement?.closest("[data-hit]") ?? document.querySelector("[data-hit]:target");

function step(by) {
  const all = hits();
  const here = all.indexOf(focusedHit());
  const next = here < 0 ? 0 : Math.min(Math.max(here + by, 0), all.length - 1);
  all[next]?.focus();
}

async function copyPermalink() {
  const hit = focusedHit();
  const link = hit?.querySelector("[data-permalink]")?.href;
  const note = hit?.querySelector("[data-note]");
  if (!link || !note) return;
  try {
    await navigator.clipboard.writeText(link);
    note.textContent = "Link copied";
  } catch {
    note.textContent = link; // the browser refused: show it, so that it can be copied by hand
  }
}

const openKeys = () => document.getElementById("keys")?.showModal();

const shortcuts = {
  j: () => step(1),
  k: () => step(-1),
  c: copyPermalink,
  "/": () => document.querySelector("[data-search]")?.focus(),
  "?": openKeys,
};

function onKey(event) {
  if (!keysAreOn || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.closest("input, textarea, select, [contenteditable], dialog")) return;
  const action = shortcuts[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

// --- htmx: say that something is under way, and say when it failed ------------------------------------

const setBusy = (busy) => (event) => event.detail.target?.setAttribute("aria-busy", String(busy));

function showFailure(failed) {
  const notice = document.querySelector("[data-request-error]");
  if (notice) notice.hidden = !failed;
}

document.addEventListener("htmx:beforeRequest", setBusy(true));
document.addEventListener("htmx:afterRequest", setBusy(false));
document.addEventListener("htmx:beforeRequest", () => showFailure(false));
document.addEventListener("htmx:responseError", () => showFailure(true));
document.addEventListener("htmx:sendError", () => showFailure(true));

// --- wiring -------------------------------------------------------------------------------------------

document.addEventListener("keydown", onKey);

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-theme-toggle]")) toggleTheme();
  if (event.target.closest("[data-keys-open]")) openKeys();
});

document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-keys-switch]")) return;
  keysAreOn = event.target.checked;
  stored.set("keys", keysAreOn ? "on" : "off");
});

function showChoices() {
  for (const box of document.querySelectorAll("[data-keys-switch]")) box.checked = keysAreOn;
  showTheme();
}

systemIsDark.addEventListener("change", showTheme);
document.addEventListener("htmx:historyRestore", showChoices); // Back brings the page as the server sends it
showChoices();
