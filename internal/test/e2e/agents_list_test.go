package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"leasehold/internal/test/clients"
)

// agents are the clients of docs/clients.md that are known for agents, tests and audits.
var agents = []agent{
	{
		name: "patchright", sample: true, form: 'B', start: script(clients.Playwright, "{}", "patchright-core"), order: bySelectors,
		prepare: orderPage, hang: evaluateForever, next: evaluateOne, end: "disconnect", reason: "connection_closed",
		inFlight: "Execution context was destroyed", afterwards: "has been closed",
	},
	{
		name: "puppeteer-extra with stealth", form: 'B', start: script(clients.Puppeteer, "./stealth.mjs"), order: bySelectorsInANewTab,
		prepare: orderPage, hang: evaluateForever, next: evaluateOne, end: "disconnect", reason: "connection_closed",
		afterwards: "detached Frame|Target closed|Session closed|Execution context was destroyed",
	},
	{
		name: "WebDriver BiDi over CDP", form: 'B', start: script(clients.Puppeteer, "./bidi.mjs"), order: bySelectors,
		prepare: orderPage, hang: evaluateForever, next: evaluateOne, end: "disconnect", reason: "connection_closed",
		afterwards: "detached Frame|closed|context is gone",
	},
	{
		name: "taiko", form: 'C', start: script(clients.Taiko), order: byWords,
		prepare: orderPage, hang: evaluateForever, next: evaluateOne, end: "disconnect", reason: "browser_close_requested|connection_closed",
		afterwards: "Connection to browser lost",
	},
	{
		name: "Stagehand", form: 'B', order: byInstructions,
		start: func(t *testing.T, shop *shop, at string) *clients.Client {
			return clients.Start(t, clients.Stagehand, at, clients.Interactive, shop.model.URL+"/v1")
		},
		prepare: orderPage, hang: evaluateForever, end: "disconnect", reason: "connection_closed",
	},
	{
		name: "agent-browser", form: 'B', start: agentBrowser, order: byCommands,
		prepare: func(shop *shop) []clients.Action { return []clients.Action{command("open", shop.URL+"/order")} },
		hang:    func(*shop) clients.Action { return command("eval", askForever) },
		next:    func(*shop) clients.Action { return command("get", "title") },
		end:     "disconnect", reason: "connection_closed",
		// It gives a command half a minute, whatever its settings say.
		inFlight: "Operation timed out", afterwards: "410",
	},
	{
		name: "Lighthouse", form: 'B', start: script(clients.Lighthouse), order: byFlow,
		prepare: func(*shop) []clients.Action { return nil },
		hang:    func(shop *shop) clients.Action { return act("audit", "url", shop.URL+"/asked") },
		next:    evaluateOne, end: "disconnect", reason: "connection_closed", dies: true, afterwards: "detached Frame|closed|context is gone",
	},
	{
		name: "chrome-devtools-mcp", form: 'B', order: byDevToolsMCP,
		start: func(t *testing.T, _ *shop, at string) *clients.Client {
			return clients.Start(t, clients.MCP, "chrome-devtools-mcp", clients.Interactive, "--no-usage-statistics", "--wsEndpoint", at)
		},
		prepare: func(shop *shop) []clients.Action {
			return []clients.Action{tool("navigate_page", map[string]any{"pageId": 1, "type": "url", "url": shop.URL + "/order"})}
		},
		hang: func(*shop) clients.Action {
			return tool("evaluate_script", map[string]any{"pageId": 1, "function": "() => " + askForever})
		},
		next: func(*shop) clients.Action { return tool("list_pages", nil) },
		end:  "disconnect", reason: "connection_closed", afterwards: "410",
	},
	{
		name: "playwright-mcp", form: 'A', set: "&on_drop=release", order: byPlaywrightMCP,
		start: func(t *testing.T, shop *shop, at string) *clients.Client {
			return clients.Start(t, clients.MCP, "playwright-mcp", clients.Interactive, "--output-dir", shop.dir, "--cdp-endpoint", at)
		},
		prepare: func(shop *shop) []clients.Action {
			return []clients.Action{tool("browser_navigate", map[string]any{"url": shop.URL + "/order"})}
		},
		hang: func(*shop) clients.Action {
			return tool("browser_evaluate", map[string]any{"function": "() => " + askForever})
		},
		next: func(shop *shop) clients.Action {
			return tool("browser_navigate", map[string]any{"url": shop.URL + "/order"})
		},
		end: "disconnect", reason: "connection_dropped",
		inFlight: "has been closed", afterwards: "410|has been closed",
	},
}

// askForever is an expression without a value. The shop sees it begin.
const askForever = "fetch('/asked').then(() => new Promise(() => {}), () => new Promise(() => {}))"

const heading = "document.querySelector('h1').textContent"

func orderPage(shop *shop) []clients.Action {
	return []clients.Action{act("goto", "url", shop.URL+"/order")}
}

func evaluateForever(*shop) clients.Action { return act("evaluate", "expression", askForever) }
func evaluateOne(*shop) clients.Action     { return act("evaluate", "expression", "1") }

// script starts a script whose first arguments are URL ACTIONS.
func script(name string, more ...string) func(*testing.T, *shop, string) *clients.Client {
	return func(t *testing.T, _ *shop, at string) *clients.Client {
		return clients.Start(t, name, append([]string{at, clients.Interactive}, more...)...)
	}
}

// thanked waits for the answer's page. While the page changes, a client may find none.
func thanked(t *testing.T, c *clients.Client, read clients.Action) (said string) {
	t.Helper()
	eventually(t, "the answer to the order", func() error {
		c.Send(t, read)
		line, err := c.Next()
		if said = asText(line.Value); err != nil || !strings.Contains(said, thanksFor) {
			return fmt.Errorf("%q %s %w", said, line.Error, err)
		}
		return nil
	})
	return said
}

// ordering opens the form, reads, does the steps, and reads the answer.
func ordering(t *testing.T, c *clients.Client, shop *shop, picture string, steps ...clients.Action) (before, after string) {
	read := act("evaluate", "expression", heading)
	c.Do(t, act("goto", "url", shop.URL+"/order"))
	before = asText(c.Do(t, read))
	for _, step := range steps {
		c.Do(t, step)
	}
	after = thanked(t, c, read)
	c.Do(t, act("screenshot", "path", picture))
	return before, after
}

func bySelectors(t *testing.T, c *clients.Client, shop *shop, picture string) (before, after string) {
	return ordering(t, c, shop, picture, act("fill", "selector", "#name", "text", "Ada"), act("click", "selector", "#send"))
}

// bySelectorsInANewTab is for what a client changes in the tabs that it opens.
func bySelectorsInANewTab(t *testing.T, c *clients.Client, shop *shop, picture string) (before, after string) {
	c.Do(t, act("newPage"))
	before, after = bySelectors(t, c, shop, picture)
	if got := asText(c.Do(t, act("evaluate", "expression", "String(navigator.webdriver)"))); got == "true" {
		t.Error("navigator.webdriver is true: the plugin has changed nothing")
	}
	return before, after
}

// byWords finds things as a person reads them.
func byWords(t *testing.T, c *clients.Client, shop *shop, picture string) (before, after string) {
	return ordering(t, c, shop, picture, act("fill", "label", "Your name", "text", "Ada"), act("click", "text", "Send order"))
}

// byInstructions has a model that finds the elements and reads the headings.
func byInstructions(t *testing.T, c *clients.Client, shop *shop, picture string) (before, after string) {
	asked, read := shop.model.Asked.Load(), act("extract", "instruction", "the heading of the page")
	c.Do(t, act("goto", "url", shop.URL+"/order"))
	before = asText(c.Do(t, read))
	if seen := string(c.Do(t, act("observe", "instruction", "what can be done here"))); !strings.Contains(seen, "Your name") || !strings.Contains(seen, "Send order") {
		t.Errorf("observe: %s", seen)
	}
	c.Do(t, act("act", "instruction", "Type Ada into the field of the name"))
	c.Do(t, act("act", "instruction", "Press the button"))
	after = thanked(t, c, read)
	c.Do(t, act("screenshot", "path", picture))
	if shop.model.Asked.Load() < asked+4 {
		t.Error("the model was not asked")
	}
	return before, after
}

// agentBrowser starts a script whose program leaves a process in the background.
func agentBrowser(t *testing.T, _ *shop, at string) *clients.Client {
	dir := t.TempDir()
	t.Cleanup(func() {
		b, err := os.ReadFile(filepath.Join(dir, "default.pid"))
		if err != nil {
			return // it has ended
		}
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return clients.Start(t, clients.AgentBrowser, at, clients.Interactive, dir)
}

func command(arguments ...string) clients.Action {
	return clients.Action{"action": "command", "arguments": arguments}
}

// byCommands does the task by commands, after a model did it by chat, which chose the same.
func byCommands(t *testing.T, c *clients.Client, shop *shop, picture string) (before, after string) {
	c.Do(t, command("open", shop.URL+"/order"))
	if said := asText(c.Do(t, act("chat", "text", "Order for Ada", "model", shop.model.URL))); !strings.Contains(said, thanksFor) {
		t.Errorf("the chat ends with %q, want %q", said, thanksFor)
	}
	shop.ordered(t, "Ada S")
	c.Do(t, command("open", shop.URL+"/order"))
	before = asText(c.Do(t, command("snapshot")))
	c.Do(t, command("fill", "@"+reference(t, before, `textbox "Your name".*?ref=(e\d+)`), "Ada"))
	c.Do(t, command("click", "@"+reference(t, before, `button "Send order".*?ref=(e\d+)`)))
	c.Do(t, command("wait", "--text", thanksFor))
	after = asText(c.Do(t, command("get", "text", "h1")))
	c.Do(t, command("screenshot", picture))
	return before, after
}
