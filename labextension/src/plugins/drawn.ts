/** When a notification of JupyterLab is drawn. */

/** How long to wait for a notification that is perhaps never drawn: the user may have switched them off. */
const LONGEST_MILLISECONDS = 10_000;

/** React's effects, which make a notification accept changes, run shortly after its element is in the page. */
const EFFECTS_MILLISECONDS = 200;

/**
 * Resolve when changes of the notification take effect. JupyterLab loads the library that draws notifications with the
 * first one, which takes a second or more over a slow connection; until then it drops changes.
 */
export function drawn(id: string): Promise<void> {
  return new Promise(done => {
    const observer = new MutationObserver(look);
    const giveUp = setTimeout(finish, LONGEST_MILLISECONDS);
    function finish(): void {
      observer.disconnect();
      clearTimeout(giveUp);
      done();
    }
    function look(): void {
      if (document.getElementById(id)?.classList.contains('Toastify__toast')) {
        observer.disconnect();
        setTimeout(finish, EFFECTS_MILLISECONDS);
      }
    }
    observer.observe(document.body, { childList: true, subtree: true });
    look();
  });
}
