// Does a worker's steps on one page for each line on stdin, and prints how many
// milliseconds they took: node playwright.mjs CDP-URL PAGE-URL [requests]
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

const [cdp, url, requests] = process.argv.slice(2);

// loads measures only how long a page with many requests takes to load.
async function loads(lines) {
  const browser = await chromium.connectOverCDP(cdp);
  const page = await browser.contexts()[0].newPage();
  for await (const _ of lines) {
    const begun = performance.now();
    await page.goto(url);
    await page.evaluate('window.all');
    console.log(performance.now() - begun);
  }
  await browser.close();
}

console.log('ready');
if (requests) {
  await loads(createInterface({ input: process.stdin }));
  process.exit(0);
}
for await (const _ of createInterface({ input: process.stdin })) {
  const begun = performance.now();
  const browser = await chromium.connectOverCDP(cdp);
  const page = await browser.contexts()[0].newPage();
  await page.goto(url);
  for (let i = 0; i < 10; i++) {
    await page.fill('input', `query ${i}`);
    await page.click('button');
    if ((await page.title()) !== `query ${i}`) throw new Error('the form was not sent');
    if ((await page.locator('li').count()) !== 200) throw new Error('the list is not whole');
  }
  await page.locator('li').allTextContents();
  await page.content();
  await page.screenshot({ fullPage: true });
  await page.close();
  const took = performance.now() - begun;
  await browser.close();
  console.log(took);
}
