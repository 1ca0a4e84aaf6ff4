// Package settle delays requests about pods while the agent starts, until it has found all pods of the node. It keeps
// nothing. The packages server and https call it.
package settle
