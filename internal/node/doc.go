// Package node holds the facts about the machine that admission needs: its capacity, the part of it that pods may use,
// its labels and its addresses.
//
// Read takes a snapshot and changes nothing. The agent reads at start, admission decides with the facts, and package
// cgroup uses them to limit all pods together. Addresses follows the machine's network while the agent runs.
package node
