// Command workload is the program in the containers of tests, benchmarks and the example: one small static program
// instead of an image with a shell.
//
// Its first argument chooses an action; usage lists them. Actions can follow each other, separated by the argument
// "then", as in `workload print ready then sleep`.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const usage = `usage: workload ACTION [ARG...] [then ACTION [ARG...]]...

  print LINE...             print each line to stdout
  error LINE...             print each line to stderr
  sleep [CODE]              wait for SIGTERM or SIGINT, then exit with CODE (default 0)
  stopped                   wait for SIGTERM or SIGINT, then continue
  stubborn                  sleep and ignore SIGTERM
  wait DURATION             wait for DURATION, such as 2s or 100ms
  until FILE...             wait until all files exist
  exit CODE [DURATION]      exit with CODE, after DURATION
  true | false              exit with 0 or 1
  serve [ADDRESS]           serve HTTP until SIGTERM (default :8080): / shows the host name and addresses,
                            /healthz the health, and POST /healthz?ok=false changes it; /redirect?to=URL;
                            /elsewhere: another host each time; /large?bytes=N; /print prints the request's headers
                            to stdout; the gRPC health service reports the same health
  get URL                   print the body of URL; exit with 1 unless the status is 2xx
  post URL                  the same with POST and no body
  fetch URL DIR             get URL from a server whose certificate is of the authority in DIR/ca.crt, with the
                            token in DIR/token
  tar ARG...                the part of tar(1) that kubectl cp uses
  stamp [FILE]              write the time at main's first instruction, in ns of CLOCK_REALTIME, to
                            FILE or stdout
  mark FILE                 write the present time to FILE in the same way
  log LINES_PER_SECOND BYTES [COUNT]
                            print lines of BYTES bytes at this rate, until SIGTERM or COUNT lines
  count                     count in memory, and print each number, until SIGTERM
  env [NAME...]             print the environment, or the values of some variables
  cat FILE...               print files
  write FILE TEXT...        write the texts as lines to a file
  append FILE TEXT...       append the texts as lines to a file
  ls DIR...                 list directories, one entry with its mode per line
  stat FILE...              print mode, owner and size of files
  id                        print uid, gid and groups
  fork N                    start N children that sleep; do not wait for them
  exists FILE...            exit with 1 unless all files exist
  eat BYTES                 use this much memory
  swell BYTES BYTES_PER_SECOND FILE
                            use this much memory at this rate; write the time and the bytes so far to FILE
  burn                      keep one CPU busy until SIGTERM
  fill FILE BYTES           write this many bytes to a file
  link TARGET NAME          replace NAME by a symbolic link to TARGET
  fifo NAME                 replace NAME by a FIFO
  swap NAME NAME            exchange two files again and again until SIGTERM
  bomb                      start copies of this action without end, also when it fails
  pour FILE BYTES [BYTES_PER_SECOND]
                            write BYTES bytes without a line break to FILE; BYTES 0 is without end
  files DIR N               create N empty files in DIR
  deep DIR N                create N directories, each in the one before
  special PATTERN...        replace each file in the directories that match by a FIFO, and create a FIFO, a socket
                            and a device there
  drip ADDRESS              send each client an HTTP answer without end, one byte every 50 ms
  loopback ADDRESS:PORT     try to reach a listener on a loopback address of the pod's gateway with
                            hand-made packets; print whether it answers
  echo                      print each line of stdin until its end
  size                      print the terminal's size, and once more after it has changed
`

func main() {
	started := time.Now()
	if filepath.Base(os.Args[0]) == "tar" { // the image has a link of this name for kubectl cp
		os.Args = append([]string{os.Args[0], "tar"}, os.Args[1:]...)
	}
	actions := split(os.Args[1:])
	if slices.ContainsFunc(actions, func(action []string) bool { return len(action) > 0 && action[0] == "cat" }) {
		runtime.LockOSThread() // /proc/self is the first thread, and some of its files are readable for that one only
	}
	if slices.ContainsFunc(actions, waits) {
		stopped() // a signal that comes before the action that waits for it counts
	}
	for _, action := range actions {
		if err := do(action, started); err != nil {
			fmt.Fprintln(os.Stderr, "workload:", err)
			os.Exit(1)
		}
	}
}

// split cuts the arguments at every "then".
func split(args []string) [][]string {
	var actions [][]string
	for {
		at := slices.Index(args, "then")
		if at < 0 {
			return append(actions, args)
		}
		actions, args = append(actions, args[:at]), args[at+1:]
	}
}

var errUsage = errors.New("wrong arguments\n" + strings.TrimSpace(usage))

// do runs one action; some do not return.
func do(action []string, started time.Time) error {
	if len(action) == 0 {
		return errUsage
	}
	args := action[1:]
	switch action[0] {
	case "print":
		return printLines(os.Stdout, args)
	case "error":
		return printLines(os.Stderr, args)
	case "sleep":
		return sleep(args)
	case "stopped":
		<-stopped()
		return nil
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		for {
			time.Sleep(time.Hour)
		}
	case "wait":
		return wait(args)
	case "until":
		return each(args, until)
	case "exit":
		return exit(args)
	case "true", "false":
		os.Exit(map[string]int{"true": 0, "false": 1}[action[0]])
	case "serve":
		return serve(args)
	case "get":
		return each(args, func(url string) error { return request(http.MethodGet, url) })
	case "post":
		return each(args, func(url string) error { return request(http.MethodPost, url) })
	case "stamp":
		return stamp(args, started)
	case "mark":
		return stamp(args, time.Now())
	case "log":
		return logLines(args)
	case "count":
		return count()
	case "env":
		return environment(args)
	case "id":
		return id()
	case "fork":
		return fork(args)
	case "eat":
		return eat(args)
	case "swell":
		return swell(args)
	case "burn":
		return burn()
	case "loopback":
		return loopback(args)
	case "echo":
		return echo()
	case "size":
		return size()
	case "fetch":
		return fetch(args)
	}
	return doFiles(action)
}

// doFiles runs one action on files, or one of hostile pods.
func doFiles(action []string) error {
	args := action[1:]
	switch action[0] {
	case "cat":
		return each(args, cat)
	case "write":
		return write(args, os.O_TRUNC)
	case "append":
		return write(args, os.O_APPEND)
	case "ls":
		return each(args, list)
	case "stat":
		return each(args, stat)
	case "exists":
		return each(args, exists)
	case "fill":
		return fill(args)
	case "link", "fifo":
		return replace(action)
	case "swap":
		return swap(args)
	case "tar":
		return archive(args)
	}
	return harm(action[0], args)
}

func printLines(to io.Writer, lines []string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(to, line); err != nil {
			return err
		}
	}
	return nil
}

func each(args []string, f func(string) error) error {
	if len(args) == 0 {
		return errUsage
	}
	for _, arg := range args {
		if err := f(arg); err != nil {
			return err
		}
	}
	return nil
}

// number is the argument at an index, or a default if there are fewer arguments.
func number(args []string, at, otherwise int) (int, error) {
	if len(args) <= at {
		return otherwise, nil
	}
	return strconv.Atoi(args[at])
}

// waits says whether an action ends with a signal.
func waits(action []string) bool {
	return len(action) > 0 && slices.Contains([]string{"sleep", "stopped", "serve", "log", "count", "burn"}, action[0])
}

// stopped receives the signals that end a container, from its first call on.
var stopped = sync.OnceValue(func() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	return signals
})

func sleep(args []string) error {
	code, err := number(args, 0, 0)
	if err != nil {
		return err
	}
	<-stopped()
	os.Exit(code)
	return nil
}

// count prints the numbers from 1 on. The last one is only in the memory of this process.
func count() error {
	for n := 1; ; n++ {
		if _, err := fmt.Println("count", n); err != nil {
			return err
		}
		select {
		case <-stopped():
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func wait(args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	length, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	time.Sleep(length)
	return nil
}

func until(path string) error {
	for {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func exit(args []string) error {
	code, err := number(args, 0, 0)
	if err != nil {
		return err
	}
	if len(args) > 1 {
		if err := wait(args[1:]); err != nil {
			return err
		}
	}
	os.Exit(code)
	return nil
}

func serve(args []string) error {
	address := ":8080"
	if len(args) > 0 {
		address = args[0]
	}
	var sick atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", describe)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if sick.Load() {
			http.Error(w, "sick", http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("POST /healthz", func(_ http.ResponseWriter, r *http.Request) {
		sick.Store(r.FormValue("ok") == "false")
	})
	mux.HandleFunc("GET /redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.FormValue("to"), http.StatusFound)
	})
	var redirects atomic.Int64
	mux.HandleFunc("GET /elsewhere", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, fmt.Sprintf("http://host-%d.example.com/", redirects.Add(1)), http.StatusFound)
	})
	mux.HandleFunc("GET /large", func(w http.ResponseWriter, r *http.Request) {
		size, _ := strconv.Atoi(r.FormValue("bytes"))
		_, _ = io.WriteString(w, strings.Repeat("x", size))
	})
	mux.HandleFunc("GET /print", func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println("Host:", r.Host)
		_ = r.Header.Write(os.Stdout)
	})
	mux.HandleFunc("POST /grpc.health.v1.Health/Check", func(w http.ResponseWriter, r *http.Request) {
		request, _ := io.ReadAll(r.Body)
		health(w, bytes.HasSuffix(request, []byte("unknown")), sick.Load())
	})
	end := stopped() // before the first answer, because the client may then stop the container
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	go func() {
		<-end
		os.Exit(0)
	}()
	server := &http.Server{Handler: mux, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true) // for gRPC
	return server.Serve(listener)
}

// health answers a call of the gRPC health service by hand: a prefix of five bytes
// (not compressed, length 2) and the message's only field, the status.
func health(w http.ResponseWriter, unknown, sick bool) {
	const serving, notServing = 1, 2
	status := byte(serving)
	if sick {
		status = notServing
	}
	w.Header().Set("Content-Type", "application/grpc")
	if unknown {
		w.Header().Set("Grpc-Status", "5") // NOT_FOUND
		w.Header().Set("Grpc-Message", "unknown service")
		return
	}
	_, _ = w.Write([]byte{0, 0, 0, 0, 2, 1 << 3, status})
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
}

// describe answers with the host name, the client's address and the pod's addresses.
func describe(w http.ResponseWriter, r *http.Request) {
	host, _ := os.Hostname()
	fmt.Fprintln(w, "host", host)
	fmt.Fprintln(w, "client", r.RemoteAddr)
	addresses, _ := net.InterfaceAddrs()
	for _, address := range addresses {
		fmt.Fprintln(w, "address", address)
	}
}

func request(method, url string) error {
	request, err := http.NewRequestWithContext(context.Background(), method, url, http.NoBody)
	if err != nil {
		return err
	}
	return show(http.DefaultClient, request)
}

// fetch sends a request like a client of the API server that runs in a pod.
func fetch(args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	authority, err1 := os.ReadFile(filepath.Join(args[1], "ca.crt"))
	token, err2 := os.ReadFile(filepath.Join(args[1], "token"))
	request, err3 := http.NewRequestWithContext(context.Background(), http.MethodGet, args[0], http.NoBody)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return show(&http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}, request)
}

// show prints the body of the answer. It returns an error unless the status is 2xx.
func show(client *http.Client, request *http.Request) error {
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(os.Stdout, response.Body); err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return errors.New(response.Status)
	}
	return nil
}

func stamp(args []string, at time.Time) error {
	text := fmt.Sprintln(at.UnixNano())
	if len(args) == 0 {
		_, err := io.WriteString(os.Stdout, text)
		return err
	}
	return os.WriteFile(args[0], []byte(text), 0o644)
}

func logLines(args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	rate, err1 := number(args, 0, 1)
	length, err2 := number(args, 1, 80)
	count, err3 := number(args, 2, -1)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if rate < 1 || length < 1 {
		return errUsage
	}
	out := bufio.NewWriter(os.Stdout)
	signals := stopped()
	// Ten bursts a second keep the rate with few system calls.
	const bursts = 10
	tick := time.NewTicker(time.Second / bursts)
	defer tick.Stop()
	for line, due := 0, 0; ; {
		select {
		case <-signals:
			return nil
		case <-tick.C:
		}
		for due += rate; due >= bursts; due -= bursts {
			if line == count {
				return out.Flush()
			}
			text := fmt.Sprintf("%0*d", length, line)
			fmt.Fprintln(out, text[len(text)-length:])
			line++
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
}

func environment(names []string) error {
	if len(names) == 0 {
		return printLines(os.Stdout, os.Environ())
	}
	for _, name := range names {
		fmt.Println(os.Getenv(name))
	}
	return nil
}

func cat(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(os.Stdout, file)
	return err
}

func write(args []string, mode int) error {
	if len(args) == 0 {
		return errUsage
	}
	file, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|mode, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(printLines(file, args[1:]), file.Close())
}

func list(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Println(info.Mode(), entry.Name())
	}
	return nil
}

func stat(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: no owner", path)
	}
	fmt.Println(info.Mode(), owner.Uid, owner.Gid, info.Size(), filepath.Base(path))
	return nil
}

func id() error {
	groups, err := os.Getgroups()
	if err != nil {
		return err
	}
	slices.Sort(groups)
	fmt.Println("uid", os.Getuid(), "gid", os.Getgid(), "groups", strings.Trim(fmt.Sprint(groups), "[]"))
	return nil
}

func fork(args []string) error {
	children, err := number(args, 0, 1)
	if err != nil {
		return err
	}
	for range children {
		child := exec.CommandContext(context.Background(), "/proc/self/exe", "sleep")
		if err := child.Start(); err != nil {
			return err
		}
		fmt.Println("child", child.Process.Pid)
	}
	return nil
}

// eat touches every page, because the kernel counts only touched memory.
func eat(args []string) error {
	size, err := number(args, 0, 0)
	if err != nil {
		return err
	}
	memory := make([]byte, size)
	for at := 0; at < size; at += os.Getpagesize() {
		memory[at] = 1
	}
	fmt.Println("ate", len(memory))
	return nil
}

func exists(path string) error {
	_, err := os.Stat(path)
	return err
}

func burn() error {
	for signals := stopped(); ; {
		select {
		case <-signals:
			return nil
		default:
		}
	}
}

func fill(args []string) error {
	size, err := number(args, 1, 0)
	if len(args) != 2 || err != nil {
		return errUsage
	}
	return os.WriteFile(args[0], bytes.Repeat([]byte("x"), size), 0o644)
}

// replace replaces a file, its last argument, by a link or a FIFO.
func replace(action []string) error {
	kind, args := action[0], action[1:]
	switch {
	case kind == "link" && len(args) == 2:
		fresh := args[1] + ".new"
		return errors.Join(os.Symlink(args[0], fresh), os.Rename(fresh, args[1]))
	case kind == "fifo" && len(args) == 1:
		fresh := args[0] + ".new"
		return errors.Join(unix.Mkfifo(fresh, 0o666), os.Rename(fresh, args[0]))
	}
	return errUsage
}

func swap(args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	for signals := stopped(); ; {
		select {
		case <-signals:
			return nil
		default:
		}
		if err := unix.Renameat2(unix.AT_FDCWD, args[0], unix.AT_FDCWD, args[1], unix.RENAME_EXCHANGE); err != nil {
			return err
		}
	}
}

func echo() error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println("read", lines.Text())
	}
	fmt.Println("end of input")
	return lines.Err()
}

// size prints the terminal's size twice: the first size, which a new terminal does not have at once, and the next.
func size() error {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	for shown, times := "", 0; times < 2; {
		w, err := unix.IoctlGetWinsize(1, unix.TIOCGWINSZ)
		if err != nil {
			return fmt.Errorf("read the terminal's size: %w", err)
		}
		if now := fmt.Sprintf("%dx%d", w.Col, w.Row); w.Col > 0 && now != shown {
			fmt.Println(now)
			shown = now
			times++
			continue
		}
		<-changed
	}
	return nil
}
