/** What a browser knows about its network and its page. Elsewhere there is nothing to listen to. */

interface Target {
  addEventListener(name: string, listener: () => void): void;
  removeEventListener(name: string, listener: () => void): void;
}

/** Calls `nudge` when the network comes back or the page is looked at again, until the answer is called. */
export function watchPage(nudge: () => void): () => void {
  const scope = globalThis as unknown as Partial<Target> & {
    document?: Target & { readonly visibilityState: string };
  };
  const { document } = scope;
  if (document === undefined || scope.addEventListener === undefined) return () => {};
  const handleVisibility = () => {
    if (document.visibilityState === "visible") nudge();
  };
  scope.addEventListener("online", nudge);
  document.addEventListener("visibilitychange", handleVisibility);
  return () => {
    scope.removeEventListener?.("online", nudge);
    document.removeEventListener("visibilitychange", handleVisibility);
  };
}
