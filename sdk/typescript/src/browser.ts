/** What a browser knows about its network and its page. Elsewhere there is nothing to listen to. */

interface Target {
  addEventListener(name: string, listener: () => void): void;
  removeEventListener(name: string, listener: () => void): void;
}

/** What a page hears of. */
export interface PageHandlers {
  /** The network is there again, or another one. */
  handleNetwork(): void;
  /** The page is looked at again. */
  handleVisible(): void;
}

/** Tells of the network and the page until the answer is called. */
export function watchPage({ handleNetwork, handleVisible }: PageHandlers): () => void {
  const scope = globalThis as unknown as Partial<Target> & {
    document?: Target & { readonly visibilityState: string };
  };
  const { document } = scope;
  if (document === undefined || scope.addEventListener === undefined) return () => {};
  const handleVisibility = () => {
    if (document.visibilityState === "visible") handleVisible();
  };
  scope.addEventListener("online", handleNetwork);
  document.addEventListener("visibilitychange", handleVisibility);
  return () => {
    scope.removeEventListener?.("online", handleNetwork);
    document.removeEventListener("visibilitychange", handleVisibility);
  };
}
