package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
)

// model stands in for the API of a language model, of OpenAI's form: it answers what the
// agents of the tests ask with an order to place. It reads the pages that the agent shows
// it, so it finds nothing where the agent has seen nothing.
type model struct {
	URL   string
	Asked atomic.Int64
}

func newModel(t *testing.T) *model {
	t.Helper()
	m := &model{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.Asked.Add(1)
		var q question
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || !strings.HasSuffix(r.URL.Path, "/chat/completions") {
			http.Error(w, fmt.Sprintf("%s: %v", r.URL.Path, err), http.StatusBadRequest)
			return
		}
		if q.Stream {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", jsonText(q.nextCommand()))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, jsonText(map[string]any{
			"id": "answer", "object": "chat.completion", "created": 1, "model": "stand-in",
			"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": jsonText(q.object())}}},
			"usage":   map[string]any{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
		}))
	}))
	t.Cleanup(server.Close)
	m.URL = server.URL
	return m
}

// question is a request for a completion.
type question struct {
	Stream   bool
	Messages []struct {
		Role    string
		Content json.RawMessage
	}
	ResponseFormat struct {
		Schema struct {
			Schema struct{ Properties map[string]any }
		} `json:"json_schema"`
	} `json:"response_format"`
}

// said is the text of a message.
func said(content json.RawMessage) string {
	var s string
	if json.Unmarshal(content, &s) != nil {
		// It is a list of parts.
		s = strings.NewReplacer(`\n`, "\n", `\"`, `"`).Replace(string(content))
	}
	return s
}

// text is what the last message says.
func (q question) text() string { return said(q.Messages[len(q.Messages)-1].Content) }

// object answers a question of Stagehand, whose last message is the instruction and the
// page: one line for each element, "[ID] ROLE: NAME".
func (q question) object() map[string]any {
	page := q.text()
	element := func(pattern string) (id, name string) {
		if found := regexp.MustCompile(`\[(\d+-\d+)\] ` + pattern).FindStringSubmatch(page); found != nil {
			return found[1], found[2]
		}
		return "", "there is no " + pattern
	}
	action := func(pattern, method string, arguments ...string) map[string]any {
		id, name := element(pattern)
		return map[string]any{"elementId": id, "description": name, "method": method, "arguments": append([]string{}, arguments...)}
	}
	field, button := `textbox: (Your name)`, `button: (Send order)`
	has := func(property string) bool { return q.ResponseFormat.Schema.Schema.Properties[property] != nil }
	switch {
	case has("extraction"):
		_, name := element(`heading: (.+)`)
		return map[string]any{"extraction": name}
	case has("completed"):
		return map[string]any{"progress": "all of it", "completed": true}
	case has("elements"):
		return map[string]any{"elements": []any{action(field, "fill", "Ada"), action(button, "click")}}
	case strings.Contains(page, "Type Ada"):
		return map[string]any{"action": action(field, "fill", "Ada"), "twoStep": false}
	default:
		return map[string]any{"action": action(button, "click"), "twoStep": false}
	}
}

// nextCommand answers agent-browser's chat with the next call of its tool, or with what the
// last one found. The first shows the page: a line for each element, 'ROLE "NAME" [ref=ID]'.
func (q question) nextCommand() map[string]any {
	var results []string
	for _, m := range q.Messages {
		if m.Role == "tool" {
			results = append(results, said(m.Content))
		}
	}
	ref := func(element string) string {
		if len(results) > 0 {
			if found := regexp.MustCompile(element + `[^\]]*ref=(e\d+)`).FindStringSubmatch(results[0]); found != nil {
				return "@" + found[1]
			}
		}
		return "@none"
	}
	commands := []string{
		"snapshot -i", "fill " + ref(`textbox "Your name"`) + " Ada", "click " + ref(`button "Send order"`),
		"wait --text Thank", "get text h1",
	}
	delta, reason := map[string]any{"role": "assistant"}, "tool_calls"
	if n := len(results); n == len(commands) {
		delta["content"], reason = "It says: "+results[n-1], "stop"
	} else {
		delta["tool_calls"] = []any{map[string]any{
			"index": 0, "id": fmt.Sprint("call_", n), "type": "function",
			"function": map[string]any{"name": "agent_browser", "arguments": jsonText(map[string]any{"command": "agent-browser " + commands[n]})},
		}}
	}
	return map[string]any{
		"id": "answer", "object": "chat.completion.chunk", "created": 1, "model": "stand-in",
		"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": reason}},
	}
}

func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
