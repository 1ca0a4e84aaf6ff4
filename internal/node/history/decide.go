package history

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
	"time"
)

// Interval is the time between two samples, and Kept the number of samples that are kept: a day.
const (
	Interval = 30 * time.Second
	Kept     = int(24 * time.Hour / Interval)
)

// unknown is the value of what could not be measured.
const unknown = -1

// Fields names the values of a sample, in their order.
var Fields = []string{"cpu", "memory", "disk", "diskRead", "diskWritten", "stallCPU", "stallMemory", "stallMemoryFull",
	"stallIO", "stallIOFull"}

// The places of the values in a sample.
const (
	cpu         = iota // busy CPUs, on average since the sample before
	memory             // memory that programs cannot get, in bytes
	disk               // used part of the file system of the root directory, in bytes
	diskRead           // bytes that all disks read each second
	diskWritten        // bytes that all disks wrote each second
	stallCPU           // the first of the shares of the time in which processes waited (stalls)
	stalls      = 5
	fields      = stallCPU + stalls
)

// Sample is the usage of the node at a time, or on average since the sample before. Unknown values are -1.
type Sample struct {
	Time   int64 // Unix, in seconds
	Values [fields]float32
}

// counters are the kernel's counters since boot. Unknown values are -1.
type counters struct {
	at          time.Time
	busy        float64         // seconds of all CPUs
	read, wrote float64         // bytes of all disks
	stall       [stalls]float64 // seconds: some waited for a CPU; some, all for memory; some, all for a disk
	now         [disk + 1]int64 // memory and disk at this time, by their places in a sample
}

// between returns the sample of the time between two readings.
func between(before, after counters) Sample {
	s := Sample{Time: after.at.Unix()}
	seconds := after.at.Sub(before.at).Seconds()
	rate := func(from, to float64) float32 {
		if from < 0 || to < from || seconds <= 0 {
			return unknown // not measured, or the counter began again
		}
		return float32((to - from) / seconds)
	}
	s.Values[cpu] = rate(before.busy, after.busy)
	s.Values[memory], s.Values[disk] = float32(after.now[memory]), float32(after.now[disk])
	s.Values[diskRead], s.Values[diskWritten] = rate(before.read, after.read), rate(before.wrote, after.wrote)
	for i := range after.stall {
		s.Values[stallCPU+i] = min(rate(before.stall[i], after.stall[i]), 1)
	}
	return s
}

// next returns the time of the sample after now. Samples are at whole intervals, so that each has a slot of its own.
func next(now time.Time) time.Time { return now.Truncate(Interval).Add(Interval) }

// slotSize is the size of a sample in the file: time, values, checksum.
const slotSize = 8 + 4*fields + 4

// slot returns the place of a sample in the ring.
func (s Sample) slot() int64 { return s.Time / int64(Interval/time.Second) % int64(Kept) }

// encode returns a sample as a slot of the file.
func (s Sample) encode() []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, slotSize), uint64(s.Time))
	for _, v := range s.Values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// decode returns the sample of a slot. ok is false for an empty or damaged slot.
func decode(slot []byte) (s Sample, ok bool) {
	body, sum := slot[:slotSize-4], binary.LittleEndian.Uint32(slot[slotSize-4:])
	s.Time = int64(binary.LittleEndian.Uint64(body))
	if s.Time == 0 || crc32.ChecksumIEEE(body) != sum {
		return s, false
	}
	for i := range s.Values {
		s.Values[i] = math.Float32frombits(binary.LittleEndian.Uint32(body[8+4*i:]))
		if math.IsNaN(float64(s.Values[i])) || math.IsInf(float64(s.Values[i]), 0) {
			return s, false
		}
	}
	return s, true
}

// magic begins the file. A file that begins with something else is replaced.
const magic = "berth history 1\n"

// decodeAll returns the samples of a file from the last day before now, oldest first.
func decodeAll(file []byte, now int64) []Sample {
	if len(file) < len(magic) || string(file[:len(magic)]) != magic {
		return nil
	}
	var all []Sample
	for slot := range slices.Chunk(file[len(magic):], slotSize) {
		if len(slot) < slotSize {
			break
		}
		s, ok := decode(slot)
		if age := now - s.Time; ok && age >= 0 && age < int64(Interval/time.Second)*int64(Kept) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Sample) int { return cmp.Compare(a.Time, b.Time) })
	return all
}
