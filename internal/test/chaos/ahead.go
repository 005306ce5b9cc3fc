package chaos

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// How a program as it was built gets a wall clock that is ahead, while its host's is not: the
// functions that the kernel maps into each process to tell the time (vDSO) are overwritten in its
// memory before it runs. Time namespaces shift only the other clocks, and a library that is loaded
// before would not be asked by a Go program. Programs that it starts have the right clock.

// clockAhead is by how much the wall clock of a launcher is ahead: more than evidence is kept by
// age, and less than the cookies of the web site live.
const clockAhead = 200 * 24 * time.Hour

// aheadMachine is the only processor for which aheadCode is written.
const aheadMachine = "amd64"

// aheadCode is the function that tells the time: what the system call says, and for the wall clock
// so many seconds more.
func aheadCode(seconds uint32) []byte {
	code := binary.LittleEndian.AppendUint32([]byte{
		0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xc0, // test eax, eax
		0x75, 0x0b, // jnz to the end
		0x85, 0xff, // test edi, edi: is it the wall clock?
		0x75, 0x07, // jnz to the end
		0x48, 0x81, 0x06, // add qword [rsi], seconds
	}, seconds)
	return append(code, 0xc3) // ret
}

// startAhead starts a command that becomes the program in the end, with a wall clock that is ahead.
func startAhead(cmd *exec.Cmd, program string, by time.Duration) error {
	runtime.LockOSThread() // only the thread that started it may trace it
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr.Ptrace = true
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	for {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, 0, nil); errors.Is(err, syscall.EINTR) {
			continue
		} else if err != nil || !status.Stopped() {
			return fmt.Errorf("pid %d: status %#x instead of a stop: %w", pid, status, err)
		}
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil {
			return err
		}
		if exe == program {
			return errors.Join(setAhead(pid, uint32(by/time.Second)), syscall.PtraceDetach(pid))
		}
		signal := status.StopSignal()
		if signal == syscall.SIGTRAP { // of an exec
			signal = 0
		}
		if err := syscall.PtraceCont(pid, int(signal)); err != nil {
			return err
		}
	}
}

// setAhead overwrites the function that tells the time in a process that this thread traces.
func setAhead(pid int, seconds uint32) error {
	begin, end, err := vdso(os.Getpid())
	if err != nil {
		return err
	}
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		return err
	}
	defer memory.Close()
	image := make([]byte, end-begin)
	if _, err := memory.ReadAt(image, int64(begin)); err != nil {
		return err
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return err
	}
	code := aheadCode(seconds)
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "__vdso_clock_gettime" })
	if i < 0 || symbols[i].Size < uint64(len(code)) {
		return errors.New("the kernel's vDSO has no __vdso_clock_gettime that can be replaced")
	}
	at, _, err := vdso(pid)
	if err != nil {
		return err
	}
	_, err = syscall.PtracePokeText(pid, uintptr(at+symbols[i].Value), code)
	return err
}

// vdso is where the kernel's functions are in a process.
func vdso(pid int) (begin, end uint64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.SplitSeq(string(maps), "\n") {
		if strings.HasSuffix(line, "[vdso]") {
			_, err = fmt.Sscanf(line, "%x-%x", &begin, &end)
			return begin, end, err
		}
	}
	return 0, 0, fmt.Errorf("pid %d has no vDSO", pid)
}
