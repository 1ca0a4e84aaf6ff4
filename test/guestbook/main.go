// Command guestbook is the web application and the database of docs/tutorial.md: one small static program instead of
// images from a registry.
//
// The database keeps the entries as lines of a file. It speaks HTTP: GET lists the entries, POST appends one, PUT
// replaces all of them. The environment variable DATABASE_PASSWORD is its password.
package main

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

const usage = `usage: guestbook web            serve the entries of the database on :8080; POST / appends an entry
       guestbook database DIR   keep the entries in DIR, and serve them on 127.0.0.1:5432
       guestbook dump           print the entries of the database
       guestbook restore        replace the entries of the database by the lines of standard input`

const (
	webAddress      = ":8080"
	databaseAddress = "127.0.0.1:5432"
	databaseURL     = "http://" + databaseAddress + "/"
	longest         = 1 << 20 // bytes of all entries
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "guestbook:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch strings.Join(args, " ") {
	case "web":
		return serve(ctx, webAddress, web())
	case "dump":
		return ask(ctx, os.Stdout, http.MethodGet, http.NoBody)
	case "restore":
		return ask(ctx, os.Stdout, http.MethodPut, os.Stdin)
	}
	if len(args) == 2 && args[0] == "database" {
		return serve(ctx, databaseAddress, &database{path: filepath.Join(args[1], "entries")})
	}
	return errors.New("wrong arguments\n" + usage)
}

// serve serves HTTP until ctx ends, and then completes the requests that have begun.
func serve(ctx context.Context, address string, handler http.Handler) error {
	server := &http.Server{Addr: address, Handler: handler}
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ended <- server.Shutdown(context.WithoutCancel(ctx))
	}()
	fmt.Println("serving on", address)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended
}

// web is the handler of the web application. It is healthy while the database answers.
func web() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "guest book, version", os.Getenv("VERSION"))
		pass(w, r, r.Method)
	})
	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, r *http.Request) { pass(w, r, r.Method) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { pass(w, r, http.MethodGet) })
	return mux
}

// pass passes a request to the database.
func pass(w http.ResponseWriter, r *http.Request, method string) {
	if err := ask(r.Context(), w, method, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

// ask sends a request to the database and copies the answer to a writer.
func ask(ctx context.Context, to io.Writer, method string, body io.Reader) error {
	request, err := http.NewRequestWithContext(ctx, method, databaseURL, body)
	if err != nil {
		return err
	}
	request.SetBasicAuth("guestbook", os.Getenv("DATABASE_PASSWORD"))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask the database: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("ask the database: %s", answer.Status)
	}
	_, err = io.Copy(to, answer.Body)
	return err
}

// database keeps the entries in a file.
type database struct {
	path string
	mu   sync.Mutex // held during each request
}

func (d *database) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, password, _ := r.BasicAuth()
	if subtle.ConstantTimeCompare([]byte(password), []byte(os.Getenv("DATABASE_PASSWORD"))) != 1 {
		http.Error(w, "wrong password", http.StatusUnauthorized)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.answer(w, r); err != nil {
		fmt.Fprintln(os.Stderr, "guestbook:", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (d *database) answer(w http.ResponseWriter, r *http.Request) error {
	entries, err := os.ReadFile(d.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if r.Method == http.MethodGet {
		_, err := w.Write(entries)
		return err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longest))
	if err != nil {
		return err
	}
	if r.Method == http.MethodPost {
		line := strings.Join(strings.Fields(string(body)), " ")
		body = slices.Concat(entries, []byte(line+"\n"))
	}
	return replace(d.path, body)
}

// replace replaces a file by one rename, after the content is on disk.
func replace(path string, content []byte) error {
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
