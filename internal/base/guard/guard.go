package guard

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
)

// Panic is the error for a function that panicked.
type Panic struct {
	// Value is the text of the value that panic was called with.
	Value string
	// Stack is the stack of the goroutine that panicked, as package debug prints it.
	Stack string
}

// Error returns the value and the place of the panic. It does not contain the rest of the stack.
func (p *Panic) Error() string { return "panic: " + p.Value + top(p.Stack) }

// Of returns the panic that err wraps, or nil.
func Of(err error) *Panic {
	p, _ := errors.AsType[*Panic](err)
	return p
}

// Call calls f. It returns a *Panic if f panics, and else the error of f.
func Call(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = caught(v)
		}
	}()
	return f()
}

// caught makes an error of a recovered value. A panic that Group passed on keeps its own stack.
func caught(v any) *Panic {
	if err, ok := v.(error); ok {
		if p := Of(err); p != nil {
			return p
		}
	}
	return &Panic{Value: fmt.Sprint(v), Stack: string(debug.Stack())}
}

// Go calls f in a goroutine of its own. If f panics, it calls failed with the panic.
func Go(f func(), failed func(*Panic)) {
	go func() {
		if p := Of(Call(func() error { f(); return nil })); p != nil {
			failed(p)
		}
	}()
}

// Group runs functions in goroutines for one subject. Its zero value is ready for use.
type Group struct {
	wg    sync.WaitGroup
	mu    sync.Mutex
	first *Panic
}

// Go calls f in a goroutine.
func (g *Group) Go(f func()) {
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		p := Of(Call(func() error { f(); return nil }))
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.first == nil {
			g.first = p
		}
	}()
}

// Wait waits until all functions have returned. If one has panicked, Wait panics with its *Panic, so that the panic
// reaches the Call that surrounds the caller.
func (g *Group) Wait() {
	g.wg.Wait()
	g.mu.Lock()
	p := g.first
	g.mu.Unlock()
	if p != nil {
		panic(p)
	}
}

// mark precedes the subject in the text of a panic that About has passed on.
const mark = "while working on "

// About calls f. If f panics, About panics with a text that names the subject too. Subject finds the name in what the
// process writes when it ends.
func About(subject string, f func()) {
	defer func() {
		if v := recover(); v != nil {
			panic(fmt.Sprintf("%v\n%s%s", v, mark, subject))
		}
	}()
	f()
}

// Subject returns the subject of the panic that ended a process, from the text that the process wrote. It is empty if
// the panic was in work for no subject, or in none that About was called for.
func Subject(text string) string {
	head, _, _ := strings.Cut(text, "\ngoroutine ")
	_, rest, ok := strings.Cut(head, mark)
	if !ok {
		return ""
	}
	subject, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(subject), "[recovered]"))
}

// top returns the function that panicked and its place, as ", in FUNCTION (FILE:LINE)". It is empty if the stack has
// another form.
func top(stack string) string {
	lines := strings.Split(stack, "\n")
	at := 0
	for i, line := range lines { // the last call of panic is the oldest: others are of deferred functions
		if strings.HasPrefix(line, "panic(") {
			at = i + 2
		}
	}
	for ; at > 0 && at+1 < len(lines); at += 2 {
		if strings.HasPrefix(lines[at], "runtime.") {
			continue
		}
		function := lines[at]
		if end := strings.LastIndex(function, "("); end > 0 {
			function = function[:end]
		}
		place, _, _ := strings.Cut(strings.TrimSpace(lines[at+1]), " +0x")
		return fmt.Sprintf(", in %s (%s)", function, place)
	}
	return ""
}
