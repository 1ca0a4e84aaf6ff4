// The words of the page. English is the key; a missing translation shows the English.
const chinese: Record<string, string> = {
  "Pods": "Pod", "Filter by name, namespace, status or label": "按名称、命名空间、状态或标签筛选", "Name": "名称", "Namespace": "命名空间",
  "Ready": "就绪", "Status": "状态", "Restarts": "重启", "CPU": "CPU", "Memory": "内存", "Age": "存在时间", "Why it waits": "等待的原因",
  "No pods run here.": "这里没有 Pod。", "No pod matches the filter.": "没有符合筛选条件的 Pod。", "Loading": "正在载入",
  "The agent cannot be reached": "无法连接代理", "trying again": "正在重试", "Start": "启动过程", "Containers": "容器", "Logs": "日志",
  "Events": "事件", "Volumes": "卷", "YAML": "YAML", "Restart": "重启", "Delete": "删除", "Cancel": "取消", "Kind": "类型",
  "This pod does not exist any more.": "此 Pod 已不存在。", "Container": "容器", "Image": "镜像", "State": "状态", "Last end": "上次结束",
  "Follow": "跟随", "Previous": "上一个实例", "Search": "搜索", "matches": "处匹配", "The log is empty.": "日志为空。",
  "No events.": "没有事件。", "Last seen": "最近一次", "Type": "级别", "Reason": "原因", "Message": "说明", "Volume": "卷",
  "Source": "来源", "Mounts": "挂载", "No volumes.": "没有卷。", "Conditions": "状况", "ready after": "就绪用时", "failed after": "失败用时",
  "not ready yet": "尚未就绪", "interrupted after": "被代理的结束中断，用时", "No start is recorded.": "没有记录启动过程。", "waited for": "等待",
  "Replace the pod by a new one with the same manifest? Its containers end within their grace period first.":
    "用同一清单的新 Pod 替换此 Pod？其容器会先在宽限期内结束。",
  "Delete the pod and its manifest? Its containers end within": "删除此 Pod 及其清单？其容器的宽限时间（秒）：", "seconds": "",
  "What admission says": "准入检查的结果", "Language": "语言", "Colours": "配色", "Dark": "深色", "Light": "浅色", "Back to all pods": "返回全部 Pod",
  "Keys: / filter, arrows choose, Enter opens, Escape goes back, 1 to 7 choose a part, n shows the node, p the pods":
    "按键：/ 筛选，方向键选择，Enter 打开，Esc 返回，1 至 7 选择栏目，n 显示节点，p 显示 Pod",
  "Click a row or point at a bar to see what it waited for.": "点击一行或指向一个条形，可查看它在等待什么。", "waited": "等待", "exit code": "退出码",
  "since": "自", "lines": "行", "Shell": "终端", "Node": "节点", "Map": "资源图", "Usage": "用量", "Images": "镜像", "Starts": "启动耗时", "Stop": "停止",
  "No container runs.": "没有正在运行的容器。", "Shift-Escape leaves the terminal.": "按 Shift-Esc 离开终端。", "Open another shell": "打开新的终端",
  "The shell has ended.": "终端已结束。", "Point at a CPU to see who has it.": "指向一个 CPU，可查看它的持有者。", "reserved": "保留", "shared": "共享", "offline": "离线",
  "free": "空闲", "unhealthy": "不健康", "an ended pod": "已结束的 Pod", "CPU policy": "CPU 策略", "memory policy": "内存策略", "topology policy": "拓扑策略",
  "sockets": "插槽数", "socket": "插槽", "Pod": "Pod", "Devices": "设备", "No pod holds CPUs, memory or devices for itself.": "没有 Pod 独占 CPU、内存或设备。",
  "free of": "可用，共", "Size": "大小", "Used": "使用情况", "Last use": "上次使用", "in use": "使用中", "pinned": "固定", "loaded": "手动载入", "No images.": "没有镜像。",
  "The last starts that became ready": "最近成功的启动", "Step": "步骤", "Count": "次数", "Hours": "小时", "Time": "时间",
  "No samples yet: the first comes within a minute.": "还没有样本，首个样本将在一分钟内出现。", "CPUs in use": "使用中的 CPU", "Memory in use": "使用中的内存",
  "Disk in use": "使用中的磁盘", "Disks": "磁盘读写", "Disk": "磁盘", "read": "读取", "written": "写入", "Pressure stall": "资源压力停顿",
  "Memory, all wait": "内存，全部等待", "Disk, all wait": "磁盘，全部等待", "Runs and probes": "运行与探针", "ended": "已结束", "running": "运行中", "succeeds": "成功",
  "fails": "失败", "Startup probe": "启动探针", "Readiness probe": "就绪探针", "Liveness probe": "存活探针",
  "Point at a bar, or choose one with the arrows. Results of probes are kept since the agent's start.":
    "指向一个条形或用方向键选择，可查看详情。探针结果自代理启动起保留。",
  "End the containers within their grace period? The pod stays in the list, and starts again with a restart.":
    "在宽限期内结束容器？Pod 仍留在列表中，重启后再次运行。", "is waited for by": "被等待于", "licences": "许可证", "Objects": "对象", "Used by": "使用者", "This is not a part of the exported page.": "导出的页面不含此内容。",
  "This is a picture of the node from": "此页面是节点在以下时间的快照：", "Values of environment variables, logs and what looks like a secret are left out.":
    "环境变量的值、日志以及疑似机密的内容已略去。",
  "connection closed": "连接已断开", "requests / limits": "请求 / 上限", "init": "初始化", "sidecar": "边车", "ephemeral": "临时",
  "admitted": "准入", "not yet": "暂缓", "blocked": "受阻", "rejected": "拒绝", "invalid": "清单无效", "rule": "规则", "would get": "将获得", "until": "最迟",
  "Next step": "下一步", "These pods would end to make room": "为腾出资源将结束这些 Pod",
  "Admission lets the pod start. What it waits for comes later: look at its start and its events.": "准入允许此 Pod 启动。它等待的内容在后面的步骤中：请查看启动过程和事件。",
  "The pod starts by itself when this is free. To make room, stop a pod that holds it.": "资源空出后 Pod 会自行启动。若要腾出资源，请停止占用它的 Pod。",
  "Change this node so that it can do this, or apply a manifest that does not ask for it.": "请更改此节点使其具备该能力，或应用不要求该能力的清单。",
  "Apply a changed manifest. If the node has changed, restart the pod.": "请应用修改后的清单。如果节点已改变，请重启此 Pod。",
  "Correct the manifest, and apply it again.": "请改正清单并重新应用。",
  "Apply the RuntimeClass, or configure its handler in the runtime. The pod then starts by itself.": "请应用该 RuntimeClass，或在运行时中配置其处理程序。之后 Pod 会自行启动。",
  "Apply the object that the message names. The pod then starts by itself.": "请应用说明中提到的对象。之后 Pod 会自行启动。",
  "The pod starts by itself when the API server has answered.": "API 服务器答复后 Pod 会自行启动。",
  "Free memory or disk space on this node. The pod then starts by itself.": "请释放此节点的内存或磁盘空间。之后 Pod 会自行启动。",
  "The pod starts by itself when the earlier pod of its name has ended. Nothing has to be done.": "同名的前一个 Pod 结束后，此 Pod 会自行启动，无需操作。",
};

let language = "en";

export const languages = ["en", "zh"];

export function setLanguage(l: string) {
  language = l;
  document.documentElement.lang = l === "zh" ? "zh-CN" : "en";
  save("language", l);
}

export const currentLanguage = () => language;

export const t = (english: string) => language === "zh" ? chinese[english] ?? english : english;

// save and load keep a choice of the user in this browser, if it lets us.
export function save(name: string, value: string) {
  try { localStorage.setItem("berth-" + name, value); } catch { /* private windows have no storage */ }
}

export function load(name: string): string {
  try { return localStorage.getItem("berth-" + name) ?? ""; } catch { return ""; }
}
