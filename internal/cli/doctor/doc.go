// Package doctor implements "berth doctor", and logs the same findings at the start of an agent. The checks are in
// package node/doctor.
package doctor
