// Package top is "berth top": what the node and its pods use now, beside what they requested. Rows and their order are
// pure functions; the command asks the agent and draws.
package top
