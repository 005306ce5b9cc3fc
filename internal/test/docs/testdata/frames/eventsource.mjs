// A snippet for pages, with an EventSource in "events": it is to get the event of its own
// session's beginning.
import { chromium } from 'playwright-core';
const browser = await chromium.connectOverCDP(
  'http://127.0.0.1:9333/profiles/shop_018?worker=worker-7&task=task_101&create=true&wait=10s');
const page = browser.contexts()[0].pages()[0];
page.on('console', (m) => console.log(m.text()));
await page.goto('http://127.0.0.1:9333/openapi.json');
await page.evaluate(() => new Promise((resolve, reject) => {
  setTimeout(reject, 60000, new Error('no event'));
// the snippet
  events.addEventListener('message', () => setTimeout(resolve, 100));
}));
await browser.close();
