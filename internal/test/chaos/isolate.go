package chaos

import (
	"os"
	"os/exec"
	"syscall"
)

// The environment variables that tell the program of Config.Self its role and its
// configuration, and the roles.
const (
	roleVariable   = "LEASEHOLD_CHAOS_ROLE"
	configVariable = "LEASEHOLD_CHAOS_CONFIG"
	roleWorker     = "worker"
	roleRun        = "run"
)

// isolate returns a command that runs in network, mount and process namespaces of its
// own, so that nothing is left when it ends. If the host does not allow that, it
// returns false and a command without namespaces. The first process is a shell, which
// reaps orphans.
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
		return killedWithParent(cmd), false
	}
	flags = append(flags, "--", "sh", "-c", `"$@"; exit $?`, "sh", name)
	return killedWithParent(exec.Command("unshare", append(flags, args...)...)), true
}

// mountsImages tells whether a process in such namespaces can mount a file system in a file.
func mountsImages() bool {
	_, err := exec.LookPath("mke2fs")
	return err == nil && os.Getuid() == 0
}

// killedWithParent makes the kernel kill the command when the thread that started it
// ends.
func killedWithParent(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}
