// A worker with Puppeteer: node puppeteer.mjs
import puppeteer from 'puppeteer-core'; // or 'puppeteer'

const sidecar = (process.env.LEASEHOLD_URL ?? 'http://127.0.0.1:9333').replace(/^http/, 'ws');
const shop = `http://127.0.0.1:${process.env.PORT ?? 8080}/`;

const browser = await puppeteer.connect({
  browserWSEndpoint: `${sidecar}/devtools/browser/shop_018?worker=worker-8&task=task_102&create=true&wait=60s`,
});
const page = (await browser.pages())[0];

const lease = await page.createCDPSession();
await lease.send('Lease.step', { name: 'look_at_the_shop' });

await page.goto(shop);
console.log('Puppeteer:', await page.$eval('#visits', (e) => e.textContent));
await browser.close();
