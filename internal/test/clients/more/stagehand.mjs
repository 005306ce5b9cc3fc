// Stagehand as a worker: node stagehand.mjs URL ACTIONS MODEL (see ../actions.mjs). MODEL is
// the base URL of a model's API, of OpenAI's form. Actions:
//   goto {url}  act {instruction}  extract {instruction}  observe {instruction}
//   evaluate {expression}  screenshot {path}  disconnect
import { Stagehand } from '@browserbasehq/stagehand';
import { run, usage } from '../actions.mjs';

const [url, actions, model] = usage('stagehand.mjs', 'URL ACTIONS MODEL', 3);

await run(async () => {
  const stagehand = new Stagehand({
    env: 'LOCAL',
    localBrowserLaunchOptions: { cdpUrl: url },
    model: { modelName: 'openai/gpt-4.1-mini', apiKey: 'none', baseURL: model, openaiEndpointFormat: 'chat' },
    verbose: 0,
    disablePino: true,
    logger: () => {},
  });
  await stagehand.init();
  const page = stagehand.context.pages()[0];
  return {
    goto: async ({ url }) => (await page.goto(url))?.status() ?? null,
    act: async ({ instruction }) => {
      const { success, message } = await stagehand.act(instruction);
      if (!success) throw new Error(message);
      return message;
    },
    extract: async ({ instruction }) => (await stagehand.extract(instruction)).extraction,
    observe: async ({ instruction }) => (await stagehand.observe(instruction)).map((found) => found.description),
    evaluate: async ({ expression }) => page.evaluate(expression),
    screenshot: async ({ path }) => (await page.screenshot({ path })).length,
    disconnect: async () => stagehand.close(),
  };
}, actions);
