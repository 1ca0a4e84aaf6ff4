// Package rules removes packet filter rules that CNI plugins have made for pods. The plugin bridge makes masquerading
// rules, and the plugin portmap rules for host ports. Each rule has a comment that names the sandbox.
//
// The bridge plugin leaves its rules behind when the network namespace of a pod no longer exists, and no plugin
// implements the CNI operation GC. So the runtime removes the rules itself. It never removes the tables and chains that
// all pods of the machine share: another CNI user may be about to add a rule to them.
package rules
