// Package topology implements "berth topology": it draws the machine's CPUs, memory and devices, and their
// holders. The drawing depends only on the agent's answer.
package topology
