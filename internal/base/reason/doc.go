// Package reason is an error that carries the Kubernetes reason a user sees.
//
// It owns the spelling of the reasons and the rule which of several nested reasons is shown (the outermost). Every
// package may return such an error. Packages podstatus and event read its reason.
package reason
