// What the workers of the incidents have in common. Each worker performs the same
// actions, one JSON object per line (see actions.mjs; internal/test/incidents/program.go
// writes them):
//   goto {url}  open {url}  click {selector}  aside {selector}  fill {selector, text}
//   type {text}  press {text}  attach {selector, path}  run {expression}  scroll {text}
//   see {text}  dialog {text}  accept {text}  switch {url}  close {url}
//   cdp {method, params}  and, save for Selenium, apart {url}  dispose {url}

const recheck = 30;
const patience = 50000;

export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// until repeats a question until its answer is true. A page that is just navigating may
// give an error, which is no failure.
export async function until(what, ask) {
  const end = Date.now() + patience;
  let last;
  while (Date.now() < end) {
    try {
      const answer = await ask();
      if (answer) return answer;
    } catch (error) {
      last = error;
    }
    await pause(recheck);
  }
  throw new Error(`waiting for ${what}: ${last?.message ?? 'it did not happen'}`);
}

// soon returns when a promise is fulfilled, but not later than in some time: a click may
// wait for a dialog that it opened, or for an answer that does not come.
export async function soon(promise, milliseconds = 1500) {
  promise.catch(() => {});
  await Promise.race([promise, pause(milliseconds)]);
}

// shows is an expression that is true if the page shows a text.
export const shows = (text) => `!!document.body && document.body.innerText.includes(${JSON.stringify(text)})`;

// dialogs keeps the dialogs that open, and waits for one with a text.
export function dialogs() {
  const open = [];
  return {
    opened: (text, accept) => open.push({ text, accept }),
    wait: (text) => until(`the dialog ${text}`, () => open.find((d) => d.text.includes(text))),
  };
}
