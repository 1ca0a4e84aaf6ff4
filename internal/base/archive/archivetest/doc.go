// Package archivetest makes tar streams that archive/tar cannot write.
package archivetest
