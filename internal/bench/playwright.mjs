// What a worker does with one page, once for each line on stdin; prints how many
// milliseconds it took: node playwright.mjs CDP-URL PAGE-URL
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

const [cdp, url] = process.argv.slice(2);
console.log('ready');
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
