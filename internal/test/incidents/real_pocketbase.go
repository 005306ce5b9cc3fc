package incidents

import (
	"context"
	"encoding/json"
	"os/exec"
)

// pocketbase is PocketBase with a collection of orders, as its superuser sees it.
func pocketbase(ctx context.Context, dir string) (*application, error) {
	const user, password = "ops@example.com", "secret-ops-1"
	binary := installedReal("pocketbase/pocketbase")
	if err := exec.CommandContext(ctx, binary, "superuser", "create", user, password, "--dir", dir).Run(); err != nil {
		return nil, err
	}
	number, err := port()
	if err != nil {
		return nil, err
	}
	a := &application{host: "127.0.0.1:" + number, signIn: []Action{
		{Goto: "/_/"}, {Fill: &Fill{"input[name=identity]", user}}, {Fill: &Fill{"input[type=password]", password}},
		{Press: "Enter"}, {See: "New record"},
	}}
	if err := a.run(exec.Command(binary, "serve", "--http", a.host, "--dir", dir)); err != nil {
		return a, err
	}
	var signedIn struct{ Token string }
	if err := a.until(ctx, func() error {
		return a.ask(ctx, "POST", "/api/collections/_superusers/auth-with-password", "", map[string]any{"identity": user, "password": password}, &signedIn)
	}); err != nil {
		return a, err
	}
	text := func(name string) map[string]any { return map[string]any{"name": name, "type": "text"} }
	for _, made := range []struct {
		method, path string
		body         map[string]any
	}{
		{"POST", "/api/collections", map[string]any{"name": "orders", "type": "base", "fields": []any{text("title"), text("state")}}},
		{"POST", "/api/collections/orders/records", map[string]any{"id": "order0000000001", "title": "chairs", "state": "open"}},
		{"POST", "/api/collections/orders/records", map[string]any{"id": "order0000000002", "title": "tables", "state": "open"}},
		{"PATCH", "/api/settings", map[string]any{"batch": map[string]any{"enabled": true, "maxRequests": 10, "timeout": 3}}},
	} {
		if err := a.ask(ctx, made.method, made.path, signedIn.Token, made.body, nil); err != nil {
			return a, err
		}
	}
	a.state = func(ctx context.Context) (map[string]string, error) {
		all := map[string]string{}
		var settings json.RawMessage
		if err := a.ask(ctx, "GET", "/api/settings", signedIn.Token, nil, &settings); err != nil {
			return nil, err
		}
		all["settings"] = string(settings)
		type list struct{ Items []json.RawMessage }
		var collections list
		if err := a.ask(ctx, "GET", "/api/collections?perPage=500", signedIn.Token, nil, &collections); err != nil {
			return nil, err
		}
		for _, c := range collections.Items {
			var collection struct{ Name string }
			if err := json.Unmarshal(c, &collection); err != nil {
				return nil, err
			}
			all["collection "+collection.Name] = string(c)
			if collection.Name == "_authOrigins" {
				continue // where its users have signed in from
			}
			var records list
			if err := a.ask(ctx, "GET", "/api/collections/"+collection.Name+"/records?perPage=500", signedIn.Token, nil, &records); err != nil {
				return nil, err
			}
			for _, r := range records.Items {
				var record struct{ ID string }
				if err := json.Unmarshal(r, &record); err != nil {
					return nil, err
				}
				all[collection.Name+" "+record.ID] = string(r)
			}
		}
		return all, nil
	}
	return a, nil
}
