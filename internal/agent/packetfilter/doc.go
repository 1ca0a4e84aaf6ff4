// Package packetfilter names the rules in the machine's packet filter that belong to one root directory. So the agent
// that makes them and the reset that removes them mean the same rules. It owns nothing.
package packetfilter
