// Package archivetest makes tar streams for tests, also such that archive/tar cannot write.
package archivetest
