// puppeteer-extra with its stealth plugin, as a package of puppeteer.mjs.
import { addExtra } from 'puppeteer-extra';
import stealth from 'puppeteer-extra-plugin-stealth';
import puppeteer from 'puppeteer-core';

export default addExtra(puppeteer).use(stealth());
