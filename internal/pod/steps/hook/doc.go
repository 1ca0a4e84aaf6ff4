// Package hook runs the node operator's hooks: executables in directories named
// after the moments of a container's life, which may refuse it and shape it.
//
// It owns what a hook is told, what it may answer and how long it may take; the
// contract is docs/hooks.md. It keeps nothing: the directories are read at each
// use, so that a hook is in force as soon as it is there. Package container
// calls it as one of its lifecycles.
package hook
