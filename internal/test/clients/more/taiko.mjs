// Taiko as a worker: node taiko.mjs HOST:PORT ACTIONS (see ../actions.mjs). Actions:
//   goto {url}  fill {label, text}  click {text}  evaluate {expression}
//   screenshot {path}  disconnect
// fill and click find things as Taiko's users do, by what a person reads.
import { run, usage } from '../actions.mjs';
// It has one browser for the whole process.
import * as taiko from 'taiko';

const [address, actions] = usage('taiko.mjs', 'HOST:PORT ACTIONS', 2);
const colon = address.lastIndexOf(':');

await run(async () => {
  await taiko.openBrowser({ host: address.slice(0, colon), port: Number(address.slice(colon + 1)) });
  return {
    goto: async ({ url }) => (await taiko.goto(url)).status.code,
    fill: async ({ label, text }) => taiko.write(text, taiko.into(taiko.textBox(label))),
    click: async ({ text }) => taiko.click(taiko.button(text)),
    evaluate: async ({ expression }) => taiko.evaluate((_, { expression }) => (0, eval)(expression), { args: { expression } }),
    screenshot: async ({ path }) => { await taiko.screenshot({ path }); },
    // It closes its page, whose socket it then uses to close the browser. On Chrome's port,
    // too, that socket may have ended with the page.
    disconnect: async () => taiko.closeBrowser().catch((error) => {
      if (error.message !== 'WebSocket connection closed') throw error;
    }),
  };
}, actions);
