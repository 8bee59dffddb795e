/** The form that says how the page reads. */

import { byId } from "./text.js";

/** Calls `handleChange(options)` now, and whenever the form says something else. */
export function watchControls(form, handleChange) {
  const read = () => {
    const fields = new FormData(form);
    const conflation = fields.get("conflation");
    byId("interval-field").hidden = conflation !== "always";
    const speed = fields.get("speed");
    return {
      transport: fields.get("transport"),
      conflation,
      intervalMs: conflation === "always" ? Number(fields.get("interval")) : undefined,
      delta: fields.get("delta"),
      bytesPerSecond: speed === "" ? undefined : Number(speed),
      isBreaking: fields.get("drop") !== null,
    };
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  // Some of its fields stand elsewhere on the page; what bubbles to a field set was told already.
  for (const field of form.elements) if (field.name) field.addEventListener("change", () => handleChange(read()));
  // A browser may bring back what was chosen before a reload.
  handleChange(read());
}

/** The button that turns light into dark, and back. */
export function watchTheme(button, handleChange) {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const show = () => {
    button.textContent = `Theme: ${isDark() ? "dark" : "light"}`;
    handleChange();
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("tidegate-theme", root.dataset.theme);
    } catch {
      // Without storage it lasts until the page is left.
    }
    show();
  });
  system.addEventListener("change", show);
  show();
}
