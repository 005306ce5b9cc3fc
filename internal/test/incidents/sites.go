package incidents

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// table serves a file to download.
func (r routes) table(pattern, name string) {
	r.HandleFunc("GET "+pattern, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/csv")
		w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name))
		_, _ = io.WriteString(w, "a,b\n1,2\n")
	})
}

// shop is a shop with a checkout, a card company, and a bank that asks for a code.
func shop(s *site) http.Handler {
	r := s.routes()
	r.page("shop.html", "/{$}", "/find")
	r.page("product.html", "/products/{id}", "/products/{id}/reviews")
	r.page("tagged.html", "/week")
	r.page("worker.html", "/offline")
	r.file("/sw.js", "sw.js", "text/javascript")
	r.page("token.html", "/catalogue")
	r.page("cart.html", "/cart")
	r.page("quick.html", "/quick")
	r.page("embed.html", "cards.localhost/embed")
	r.page("checkout.html", "/checkout")
	r.page("till.html", "/express/checkout")
	r.page("going.html", "/go/{id}")
	r.page("page.html", "/thanks/{id}", "/invoices/{id}")
	r.page("orders.html", "/orders")
	r.table("/orders.csv", "orders.csv")
	r.HandleFunc("POST /search", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!doctype html><title>Found</title><h1>two products</h1>")
	})
	r.nothing("POST /consent")
	r.nothing("POST /api/csrf")
	r.nothing("POST /outgoing/{id}")
	r.does("POST /api/cart", "a product was put into the cart")
	r.does("POST /api/order", "an order was placed")
	r.then("POST /checkout/order", "an order was placed", "/thanks/1042")
	r.does("POST cards.localhost/v1/intents/{id}/complete", "a card was charged")
	asked := 0
	r.HandleFunc("POST /api/finish", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		asked++
		n := asked
		s.mu.Unlock()
		state := "pending"
		switch {
		case n == 1: // later requests only ask for the state
			s.happened("an order was placed")
		case n >= 20:
			state = "finished"
		}
		_, _ = fmt.Fprintf(w, `{"state":%q}`, state)
	})
	// The card owner's bank comes between the checkout and the confirmation.
	r.HandleFunc("POST /secure/order", func(w http.ResponseWriter, req *http.Request) {
		s.happened("an order waits for the bank")
		http.Redirect(w, req, "http://acs.localhost:"+s.port+"/", http.StatusSeeOther)
	})
	r.page("secure.html", "/secure/checkout")
	r.page("acs.html", "acs.localhost/{$}")
	r.then("POST acs.localhost/back", "a card was charged", "/thanks/1042")
	return r
}

// bank has accounts and transfers.
func bank(s *site) http.Handler {
	r := s.routes()
	r.page("accounts.html", "/accounts")
	r.page("batch.html", "/overview")
	r.page("alive.html", "/statements", "/statements/{month}")
	r.table("/statements/2026-10.pdf", "2026-10.pdf")
	r.page("refresh.html", "/messages")
	r.page("move.html", "/transfer")
	r.page("code.html", "/mfa")
	r.page("page.html", "/payouts/new", "/done", "/help/{topic}")
	r.nothing("POST /api/alive")
	r.nothing("POST /oauth/token")
	r.HandleFunc("POST /rpc", func(w http.ResponseWriter, req *http.Request) {
		calls, err := objects(req)
		for _, c := range calls {
			if c["method"] == "moveMoney" {
				s.happened("money was moved")
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, `{"balance":"100.00"}`)
	})
	r.HandleFunc("POST /transfer/review", func(w http.ResponseWriter, _ *http.Request) {
		sendFile(w, "review.html", "text/html", http.StatusOK)
	})
	r.then("POST /transfer/execute", "money was sent", "/done")
	return r
}

// ads has campaigns, reports about them, and an editor that saves drafts.
func ads(s *site) http.Handler {
	r := s.routes()
	r.page("campaigns.html", "/campaigns")
	r.page("report.html", "/campaigns/{id}")
	r.page("editor.html", "/campaigns/{id}/edit")
	r.page("text.html", "/texts/{id}")
	r.nothing("POST /api/reports/query")
	r.does("PATCH /api/campaigns/{id}", "a campaign was halted")
	r.does("PUT /api/drafts/{id}", "a draft was changed")
	r.does("POST /api/campaigns/{id}/publish", "a campaign went live")
	r.does("POST /api/budgets/{id}", "a budget was raised")
	r.does("POST /api/texts/{id}", "a text was changed")
	r.HandleFunc("PUT /api/labels/{id}", func(w http.ResponseWriter, _ *http.Request) {
		s.happenedIdempotently("a campaign has its label")
		_, _ = io.WriteString(w, `{"ok":true}`)
	})
	return r
}

// loginSite asks for a password and a code.
func loginSite(s *site) http.Handler {
	r := s.routes()
	r.page("home.html", "/home")
	r.page("page.html", "/news")
	r.page("login.html", "/login")
	r.page("spa-login.html", "/signin")
	r.page("code.html", "/mfa")
	r.page("page.html", "/forgot-password")
	r.HandleFunc("GET /inside", func(w http.ResponseWriter, req *http.Request) { http.Redirect(w, req, "/login", http.StatusFound) })
	r.HandleFunc("POST /login", func(w http.ResponseWriter, req *http.Request) {
		if req.FormValue("password") == "right" {
			s.happened("somebody logged in")
			http.Redirect(w, req, "/home", http.StatusSeeOther)
			return
		}
		if strings.HasPrefix(req.FormValue("password"), "code") {
			http.Redirect(w, req, "/mfa", http.StatusSeeOther)
			return
		}
		s.happened("one attempt less is left")
		sendFile(w, "wrong.html", "text/html", http.StatusUnauthorized)
	})
	r.does("POST /api/session", "somebody logged in")
	r.then("POST /mfa", "somebody logged in", "/home")
	r.then("POST /logout", "the session was ended", "/login")
	return r
}

// settings has people's pages, and the settings and notifications of the account.
func settings(s *site) http.Handler {
	r := s.routes()
	r.page("settings.html", "/settings/account")
	r.page("people.html", "/people")
	r.page("person.html", "/people/{name}")
	r.page("inbox.html", "/notifications")
	r.nothing("POST /api/notifications/list")
	r.does("PUT /api/me", "the name was changed")
	r.does("PATCH /api/people/{name}", "a page was made public")
	r.does("POST /api/people/{name}/picture", "a picture was changed")
	r.does("DELETE /api/people/{name}/muted", "somebody is followed")
	return r
}

// feed is an endless feed that loads more by GraphQL.
func feed(s *site) http.Handler {
	r := s.routes()
	r.page("feed.html", "/{$}", "/stored")
	r.page("video.html", "/films/{id}")
	r.nothing("POST /api/watching")
	r.HandleFunc("POST /graphql", func(w http.ResponseWriter, req *http.Request) {
		operations, err := objects(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for _, o := range operations {
			if o["operationName"] == "Like" {
				s.happened("a post was liked")
			}
		}
		_, _ = io.WriteString(w, `{"data":{}}`)
	})
	return r
}

// dashboard has pages that poll.
func dashboard(s *site) http.Handler {
	r := s.routes()
	r.page("dashboard.html", "/services", "/live")
	r.page("sync.html", "/sync")
	r.table("/services.csv", "services.csv")
	r.nothing("POST /api/query")
	r.does("POST /api/alerts/{id}/ack", "an alert was taken")
	r.does("POST /api/services/{name}/restart", "a service was restarted")
	r.does("POST /api/sync", "the old account was brought over")
	return r
}

// app is a single-page application with a websocket, beacons and a service worker.
func app(s *site) http.Handler {
	r := s.routes()
	r.page("app.html", "/{$}")
	r.page("note.html", "/notes/{id}")
	r.file("/outbox.js", "outbox.js", "text/javascript")
	r.socket("/socket", []string{`{"text":"the first news"}`}, func(text string) {
		if strings.Contains(text, `"message"`) {
			s.happened("something was said in a room")
		}
	})
	r.does("POST /api/outbox", "a note was sent")
	r.does("POST /api/notes/{id}", "a note was changed")
	r.does("POST /share", "a note was shared")
	r.nothing("POST /api/find")
	r.HandleFunc("POST /api/find/moved", func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, "/api/notes/7", http.StatusTemporaryRedirect) // the browser repeats method and body
	})
	return r
}
