package main

// all are the suites, those of the most worth first.
var all = []suite{
	{name: "rod", version: rodVersion, prepare: prepareRod, leftOut: rodLeftOut, exceptions: rodExceptions},
	{name: "cri", version: criRepository.version, prepare: prepareCRI},
	{name: "chromedp", version: chromedpVersion, prepare: prepareChromedp, leftOut: chromedpLeftOut},
	{name: "puppeteer", version: puppeteerRepository.version, prepare: preparePuppeteer, leftOut: puppeteerLeftOut, exceptions: puppeteerExceptions},
	{name: "playwright-page", version: playwrightRepository.version, prepare: preparePlaywright("page"), leftOut: playwrightLeftOut, exceptions: playwrightExceptions},
	{name: "playwright-library", version: playwrightRepository.version, prepare: preparePlaywright("library"), leftOut: playwrightLeftOut, exceptions: playwrightExceptions},
}

var rodLeftOut = []exception{}

var rodExceptions = []exception{
	except("TestBrowserCrash", "crashes the browser by a command: Browser.crash is refused, since other sessions and the evidence would go with it"),
}

var puppeteerLeftOut = []exception{}

var puppeteerExceptions = []exception{}

var playwrightLeftOut = []exception{}

var playwrightExceptions = []exception{}

var chromedpLeftOut = []exception{
	except("TestEnv", "sets the environment of the browser's process: the sidecar starts it, with its own"),
	except("TestModifyCmdFunc", "changes the command that starts the browser: the sidecar starts it"),
	except("TestCombinedOutput|TestExecAllocatorPipeStartFailure", "reads what the browser prints: the sidecar keeps that, as evidence"),
	except("TestVisibleWindow", "shows a window, for which there is no display"),
}
