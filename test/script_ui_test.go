package test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rogpeppe/go-internal/testscript"
)

// page runs "berth ui", opens its page, and does one thing that the page does:
//
//	page stop|restart POD               ends or restarts a pod
//	page shell POD CONTAINER LINE WANT  types a line into a shell, and waits for output that contains WANT
//
// A shell is left as a browser leaves it whose window is closed.
func (h *harness) page(ts *testscript.TestScript, args []string) {
	cmd := exec.Command(h.bin, "--root-dir", rootOf(ts), "ui")
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	ts.Check(cmd.Start())
	defer func() {
		ts.Check(cmd.Process.Signal(syscall.SIGINT))
		ts.Check(cmd.Wait())
		if problems.Len() > 0 {
			ts.Fatalf("berth ui wrote %s", problems.String())
		}
	}()
	link := ""
	for lines := bufio.NewScanner(out); link == "" && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "http://") {
			link = lines.Text()
		}
	}
	base, _, _ := strings.Cut(link, "/?")
	jar, err := cookiejar.New(nil)
	ts.Check(err)
	browser := &http.Client{Jar: jar}
	answer, err := browser.Get(link)
	ts.Check(err)
	_ = answer.Body.Close()
	pod := key(args[1])
	if args[0] == "shell" {
		target := base + "/live/shell/" + pod.String() + "?container=" + args[2]
		if err := typeInto(jar, target, args[3], args[4]); err != nil {
			ts.Fatalf("shell: %v", err)
		}
		return
	}
	p, err := clientOf(ts).Pod(pod).Get(context.Background())
	ts.Check(err)
	req, err := http.NewRequest(http.MethodPost, base+"/"+args[0]+"/"+pod.String()+"?uid="+string(p.UID), nil)
	ts.Check(err)
	req.Header.Set("Origin", base)
	answer, err = browser.Do(req)
	ts.Check(err)
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		ts.Fatalf("%s: %s", args[0], answer.Status)
	}
}

// typeInto types a line into a shell of the page, and returns when its output contains want.
func typeInto(jar http.CookieJar, target, line, want string) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	h := http.Header{"Origin": {"http://" + u.Host}}
	for _, c := range jar.Cookies(u) {
		h.Add("Cookie", c.String())
	}
	u.Scheme = "ws"
	conn, answer, err := websocket.DefaultDialer.Dial(u.String(), h)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	defer func() { _ = conn.Close() }() // the answer has been read
	err = errors.Join(conn.SetReadDeadline(time.Now().Add(patience)),
		conn.WriteMessage(websocket.TextMessage, []byte(`{"columns":80,"rows":24}`)),
		conn.WriteMessage(websocket.BinaryMessage, []byte(line+"\r")))
	for shown := ""; err == nil && !strings.Contains(shown, want); {
		var text []byte
		if _, text, err = conn.ReadMessage(); err != nil {
			return fmt.Errorf("%w, after %q", err, shown)
		}
		shown += string(text)
	}
	return err
}
