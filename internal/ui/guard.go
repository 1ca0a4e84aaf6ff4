package ui

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/gorilla/websocket"
)

// maxLinks is how many links are valid at the same time. maxSessions is how many browsers may use the page. A new one
// ends the oldest.
const maxLinks, maxSessions = 4, 16

// guard decides which requests come from the user's own page.
type guard struct {
	hosts  []string // values of the Host header that name this server
	cookie string   // name of the cookie; a cookie is valid for all ports of a host, so its name has the port

	mu       sync.Mutex
	links    []secret
	sessions []secret
}

// secret is the hash of a token.
type secret [sha256.Size]byte

func hash(token string) secret { return sha256.Sum256([]byte(token)) }

// index returns the place of a token's hash in list, or -1. Its duration does not depend on the content.
func index(list []secret, token string) int {
	h, found := hash(token), -1
	for i := range list {
		if subtle.ConstantTimeCompare(list[i][:], h[:]) == 1 {
			found = i
		}
	}
	return found
}

// add appends the hash of a new random token to list, and returns the token. It removes the oldest hashes if list has
// more than most.
func add(list *[]secret, most int) string {
	token := rand.Text()
	*list = append(*list, hash(token))
	if n := len(*list) - most; n > 0 {
		*list = slices.Delete(*list, 0, n)
	}
	return token
}

// link returns the token of a new link.
func (g *guard) link() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return add(&g.links, maxLinks)
}

// open uses up the token of a link and returns the token of a new session, or false.
func (g *guard) open(token string) (session string, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := index(g.links, token)
	if i < 0 {
		return "", false
	}
	g.links = slices.Delete(g.links, i, i+1)
	return add(&g.sessions, maxSessions), true
}

// inSession reports whether a request has the cookie of a session.
func (g *guard) inSession(r *http.Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range r.CookiesNamed(g.cookie) {
		if index(g.sessions, c.Value) >= 0 {
			return true
		}
	}
	return false
}

// refusal returns why a request cannot come from the page itself or from the user's link, or "". A foreign name that
// resolves to this machine (DNS rebinding) is refused by its Host header.
func (g *guard) refusal(r *http.Request) string {
	origin, has := r.Header["Origin"]
	site := r.Header.Get("Sec-Fetch-Site")
	navigation := r.Method == http.MethodGet && r.URL.Path == "/"
	switch {
	case !slices.Contains(g.hosts, r.Host):
		return otherHost
	case has && (len(origin) != 1 || origin[0] != "http://"+r.Host):
		return otherOrigin
	case !has && (r.Method != http.MethodGet && r.Method != http.MethodHead || websocket.IsWebSocketUpgrade(r)):
		return noOrigin
	case site != "" && site != "same-origin" && site != "none" && !navigation:
		return otherSite
	}
	return ""
}

// The texts of refusals.
const (
	otherHost   = "the Host header names another server"
	otherOrigin = "the request comes from another origin"
	noOrigin    = "the request has no Origin header"
	otherSite   = "the request comes from another site"
	noSession   = "this link was used already, or its session has ended\n" +
		`next: press Enter in the terminal of "berth ui" for a new link`
)

// chinese has the texts of refusals in Chinese.
var chinese = map[string]string{
	otherHost:   "Host 标头指向另一台服务器",
	otherOrigin: "请求来自另一个来源",
	noOrigin:    "请求没有 Origin 标头",
	otherSite:   "请求来自另一个网站",
	noSession:   "此链接已被使用，或其会话已结束\n下一步：在 berth ui 的终端中按回车键以获取新链接",
}

// inLanguage returns a text in the first language that the browser asks for: Chinese or English. The page itself begins
// with the same language.
func inLanguage(r *http.Request, text string) string {
	if strings.HasPrefix(strings.ToLower(r.Header.Get("Accept-Language")), "zh") {
		return cmp.Or(chinese[text], text)
	}
	return text
}

// reloads is the source expression of the one inline script of the page. It loads the page again if a file of the page
// does not arrive: Chromium drops its requests when the network of the machine changes, as with each pod that starts.
const reloads = "'sha256-o8tbcj2S4DlJ5XZPuyC6masaWRUR+tQ5VuLcQm4KND8='"

// policy allows the page its own files and connections, and nothing else inline.
const policy = "default-src 'none'; script-src 'self' " + reloads + "; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// secure sets the headers that every answer has.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// wrap checks each request, and opens a session for a link.
func (g *guard) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		if why := g.refusal(r); why != "" {
			http.Error(w, inLanguage(r, why), http.StatusForbidden)
			return
		}
		token := r.URL.Query().Get("token")
		if r.Method == http.MethodGet && r.URL.Path == "/" && token != "" {
			if session, ok := g.open(token); ok {
				http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: session, Path: "/", HttpOnly: true,
					SameSite: http.SameSiteStrictMode})
				http.Redirect(w, r, "/", http.StatusSeeOther)
				return
			}
		}
		if !g.inSession(r) {
			http.Error(w, inLanguage(r, noSession), http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
