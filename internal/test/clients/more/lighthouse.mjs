// Lighthouse as a worker: node lighthouse.mjs URL ACTIONS (see ../actions.mjs). URL is
// http://HOST:PORT of a session's own port, which Lighthouse connects to by itself, or the
// URL of a websocket, to which Puppeteer connects. Actions:
//   audit {url}  flowLoad {url}  flowSubmit {field, text, button}  flowResult
//   evaluate {expression}  screenshot {path}  disconnect
// audit returns the scores. The flow audits a visit: it loads the page, fills the field and
// presses the button, each time returning the heading, and then tells what was found. All but
// audit need a websocket.
import lighthouse, { startFlow } from 'lighthouse';
import puppeteer from 'puppeteer-core';
import { run, usage } from '../actions.mjs';

const [url, actions] = usage('lighthouse.mjs', 'URL ACTIONS', 2);

const failed = ({ audits }) => Object.values(audits).filter((a) => a.scoreDisplayMode === 'error').map((a) => `${a.id}: ${a.errorMessage}`);

await run(async () => {
  let flow;
  const { protocol, hostname, port } = new URL(url);
  const browser = protocol === 'ws:' ? await puppeteer.connect({ browserWSEndpoint: url, defaultViewport: null }) : null;
  const page = browser && ((await browser.pages())[0] ?? (await browser.newPage()));
  // Without the first, Lighthouse deletes caches and service workers of the audited origin,
  // which are the account's. The second is for a site that nobody else calls.
  const flags = { disableStorageReset: true, throttlingMethod: 'provided', logLevel: 'error' };
  const where = page ? {} : { hostname, port: Number(port) };
  return {
    audit: async ({ url }) => {
      const onlyCategories = ['performance', 'accessibility', 'best-practices', 'seo'];
      const { lhr } = await lighthouse(url, { ...flags, ...where, onlyCategories }, undefined, page ?? undefined);
      if (lhr.runtimeError) throw new Error(`${lhr.runtimeError.code}: ${lhr.runtimeError.message}`);
      return {
        final: lhr.finalDisplayedUrl,
        scores: Object.fromEntries(Object.entries(lhr.categories).map(([name, { score }]) => [name, score])),
        failed: failed(lhr),
      };
    },
    flowLoad: async ({ url }) => {
      flow = await startFlow(page, { flags: { ...flags, onlyCategories: ['best-practices'] } });
      await flow.navigate(url);
      return page.$eval('h1', (h) => h.textContent);
    },
    flowSubmit: async ({ field, text, button }) => {
      await flow.startTimespan();
      await page.type(field, text);
      await Promise.all([page.waitForNavigation(), page.click(button)]);
      await flow.endTimespan();
      return page.$eval('h1', (h) => h.textContent);
    },
    flowResult: async () => {
      await flow.snapshot();
      const { steps } = await flow.createFlowResult();
      return { modes: steps.map(({ lhr }) => lhr.gatherMode), failed: steps.flatMap(({ lhr }) => failed(lhr)), pictured: Boolean(steps[0].lhr.fullPageScreenshot) };
    },
    screenshot: async ({ path }) => (await page.screenshot({ path })).length,
    evaluate: async ({ expression }) => page.evaluate(expression),
    disconnect: async () => browser?.disconnect(),
  };
}, actions);
