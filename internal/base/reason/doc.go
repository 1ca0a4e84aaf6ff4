// Package reason is an error that carries the Kubernetes reason a user sees.
//
// It owns the spelling of the reasons and the rule which of several nested reasons is shown (the outermost). Everybody
// may return one; podstatus and event read it.
package reason
