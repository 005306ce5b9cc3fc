package chaos

import (
	"os"
	"os/exec"
	"syscall"
)

// What a process is started for, when it is the program of Config.Self.
const (
	roleVariable   = "LEASEHOLD_CHAOS_ROLE"
	configVariable = "LEASEHOLD_CHAOS_CONFIG"
	roleWorker     = "worker"
	roleRun        = "run"
)

// isolate returns a command that runs in network, mount and process namespaces of
// its own, so that nothing of it is left when it ends, and whether such can be
// had here. A shell is its first process: it buries orphans.
func isolate(name string, args ...string) (*exec.Cmd, bool) {
	flags := []string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"}
	if os.Getuid() != 0 {
		flags = append([]string{"--map-root-user"}, flags...)
	}
	tools := true
	for _, tool := range []string{"unshare", "nsenter", "ip", "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			tools = false
		}
	}
	probe := append(append([]string{}, flags...), "--", "sh", "-c", "mount -t tmpfs none /mnt && ip link add probe0 type veth peer name probe1 && ip rule add from 192.0.2.1 blackhole")
	if !tools || exec.Command("unshare", probe...).Run() != nil {
		cmd := exec.Command(name, args...)
		return killedWithUs(cmd), false
	}
	flags = append(flags, "--", "sh", "-c", `"$@"; exit $?`, "sh", name)
	return killedWithUs(exec.Command("unshare", append(flags, args...)...)), true
}

// killedWithUs: the kernel ends it when the thread that started it does.
func killedWithUs(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}
