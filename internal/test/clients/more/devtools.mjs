// Chrome's developer tools as a worker, in a Chromium of their own:
// node devtools.mjs CHROMIUM ACTIONS DIR (see ../actions.mjs). DIR gets the Chromium's
// profile. Actions:
//   open {url, frontend}  text {contains}  evaluate {expression}  screenshot {path}  disconnect
// open opens the tools on a page socket of the sidecar; frontend is bundled (the Chromium's
// own) or npm. text waits until the tools show a text, and returns all that they show.
// evaluate types an expression into the console, and returns what the tools show of it.
import puppeteer from 'puppeteer-core';
import { run, usage } from '../actions.mjs';
import { serve } from './frontend.mjs';

const [chromium, actions, dir] = usage('devtools.mjs', 'CHROMIUM ACTIONS DIR', 3);

// shown returns the text of the document and of its shadow trees. It runs in the tools.
function shown() {
  const texts = [];
  const walk = (node) => {
    if (node.nodeType === Node.TEXT_NODE) texts.push(node.data);
    if (['STYLE', 'SCRIPT'].includes(node.nodeName)) return;
    if (node.shadowRoot) walk(node.shadowRoot);
    for (const child of node.childNodes) walk(child);
  };
  walk(document.body);
  return texts.join(' ').replaceAll(/[\s\u200b]+/g, ' ');
}

await run(async () => {
  const browser = await puppeteer.launch({ executablePath: chromium, pipe: true, userDataDir: dir, defaultViewport: { width: 1200, height: 800 }, args: ['--no-sandbox'] });
  const page = await browser.newPage();
  page.setDefaultNavigationTimeout(80000);
  const text = async (contains) => {
    const until = Date.now() + 80000;
    for (;;) {
      const all = await page.evaluate(shown);
      if (all.includes(contains)) return all;
      if (Date.now() > until) throw new Error(`the tools do not show ${contains}: ${all.slice(0, 2000)}`);
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  };
  let asked = 0;
  return {
    open: async ({ url, frontend }) => {
      const { protocol, host, pathname, search } = new URL(url);
      if (frontend === 'bundled') {
        await page.goto(`devtools://devtools/bundled/inspector.html?${protocol.slice(0, -1)}=${host}${pathname}${search}`);
      } else {
        const here = await serve(url.replace('ws', 'http'));
        await page.goto(`http://${here}/inspector.html?ws=${here}${pathname}${search}`);
      }
    },
    text: async ({ contains }) => text(contains),
    evaluate: async ({ expression }) => {
      if (asked++ === 0) await page.keyboard.press('Escape'); // opens the console below the panel
      await text('Default levels');
      // What is typed does not look like its result.
      await page.keyboard.type(`'result' + ' ${asked}: ' + (${expression})`);
      await page.keyboard.press('Enter');
      return (await text(`result ${asked}: `)).split(`result ${asked}: `).pop().slice(0, 200);
    },
    screenshot: async ({ path }) => (await page.screenshot({ path })).length,
    disconnect: async () => browser.close(),
  };
}, actions);
