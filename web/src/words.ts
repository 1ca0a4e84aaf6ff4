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
  "Keys: / filter, arrows choose, Enter opens, Escape goes back, 1 to 6 choose a part": "按键：/ 筛选，方向键选择，Enter 打开，Esc 返回，1 至 6 选择栏目",
  "Click a row or point at a bar to see what it waited for.": "点击一行或指向一个条形，可查看它在等待什么。", "waited": "等待", "exit code": "退出码",
  "since": "自", "lines": "行",
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
