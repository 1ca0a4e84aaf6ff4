// Package hook runs the node operator's hooks: executables in directories named after the moments of a container's
// life. A hook may refuse the container or change its configuration.
//
// It owns the input of a hook, its possible answers and its time limit. The contract is docs/hooks.md. It keeps no
// state: the directories are read at each use, so a new hook takes effect at once. Package container calls it as one of
// its Lifecycles.
package hook
