{{- define "dragoman.name" -}}
{{- default .Release.Name .Values.nameOverride | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{- define "dragoman.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "dragoman.labels" -}}
{{ include "dragoman.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* Whether the gateway keeps nothing: both stores are elsewhere. */}}
{{- define "dragoman.far" -}}
{{- if and .Values.stores.metadata .Values.stores.data -}}
true
{{- else if or .Values.stores.metadata .Values.stores.data -}}
{{- fail "stores: name both metadata and data, or none of them" -}}
{{- end -}}
{{- end -}}

{{- define "dragoman.protocol" -}}
{{- if .Values.tls.secret -}}SSL{{- else -}}PLAINTEXT{{- end -}}
{{- end -}}

{{/* Of the admin address, which may have TLS. */}}
{{- define "dragoman.probeScheme" -}}
{{- if eq (toString (index .Values.settings "admin.tls")) "true" }}, scheme: HTTPS{{ end -}}
{{- end -}}

{{- define "dragoman.listen" -}}
{{ include "dragoman.protocol" . }}://0.0.0.0:{{ .Values.kafka.port }}
{{- if .Values.external.enabled }},{{ include "dragoman.protocol" . }}://0.0.0.0:{{ .Values.external.port }}{{ end -}}
{{- end -}}

{{- define "dragoman.advertise" -}}
{{- $own := printf "%s.%s.svc:%v" (include "dragoman.name" .) .Release.Namespace .Values.kafka.port -}}
{{ default $own .Values.kafka.advertise }}
{{- if .Values.external.enabled }},{{ required "external.advertise: the HOST:PORT that clients outside of the cluster use" .Values.external.advertise }}{{ end -}}
{{- end -}}

{{/* The environment variable of a setting: broker.num.partitions is DRAGOMAN_BROKER_NUM_PARTITIONS. */}}
{{- define "dragoman.variable" -}}
DRAGOMAN_{{ . | replace "." "_" | upper }}
{{- end -}}

{{- define "dragoman.pod" -}}
metadata:
  labels:
    {{- include "dragoman.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  enableServiceLinks: false
  automountServiceAccountToken: false
  serviceAccountName: {{ include "dragoman.name" . }}
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: dragoman
      image: "{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      env:
        {{- include "dragoman.environment" . | nindent 8 }}
      {{- with .Values.stores.credentialsSecret }}
      envFrom:
        - secretRef: {name: {{ . }}}
      {{- end }}
      ports:
        - {name: kafka, containerPort: {{ .Values.kafka.port }}}
        {{- if .Values.external.enabled }}
        - {name: external, containerPort: {{ .Values.external.port }}}
        {{- end }}
        - {name: admin, containerPort: 9644}
      startupProbe:
        httpGet: {path: /healthz, port: admin{{ include "dragoman.probeScheme" . }}}
        periodSeconds: 2
        timeoutSeconds: 2
        failureThreshold: {{ div .Values.startupSeconds 2 }}
      readinessProbe:
        httpGet: {path: /readyz, port: admin{{ include "dragoman.probeScheme" . }}}
        periodSeconds: 5
        timeoutSeconds: 3
      livenessProbe:
        httpGet: {path: /healthz, port: admin{{ include "dragoman.probeScheme" . }}}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: data, mountPath: /data}
        {{- if .Values.tls.secret }}
        - {name: tls, mountPath: /etc/dragoman/tls, readOnly: true}
        {{- end }}
        {{- if .Values.console.tokenSecret }}
        - {name: console, mountPath: /etc/dragoman/console, readOnly: true}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {}
    {{- if include "dragoman.far" . }}
    # Nothing is written to it: it is in the place of the volume that the image declares.
    - name: data
      emptyDir: {sizeLimit: 16Mi}
    {{- end }}
    {{- with .Values.tls.secret }}
    - name: tls
      secret: {secretName: {{ . }}, defaultMode: 0440}
    {{- end }}
    {{- with .Values.console.tokenSecret }}
    - name: console
      secret: {secretName: {{ . }}, defaultMode: 0440}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "dragoman.environment" -}}
- {name: DRAGOMAN_LISTENERS_LISTEN, value: {{ include "dragoman.listen" . | quote }}}
- {name: DRAGOMAN_LISTENERS_ADVERTISE, value: {{ include "dragoman.advertise" . | quote }}}
- {name: DRAGOMAN_LOG_FORMAT, value: json}
{{- if include "dragoman.far" . }}
- {name: DRAGOMAN_STORAGE_METADATA, value: {{ .Values.stores.metadata | quote }}}
- {name: DRAGOMAN_STORAGE_DATA, value: {{ .Values.stores.data | quote }}}
{{- end }}
{{- if .Values.tls.secret }}
- {name: DRAGOMAN_TLS_CERTIFICATE, value: /etc/dragoman/tls/tls.crt}
- {name: DRAGOMAN_TLS_KEY, value: /etc/dragoman/tls/tls.key}
- {name: DRAGOMAN_TLS_CLIENT_AUTH, value: {{ .Values.tls.clientAuth }}}
{{- if ne .Values.tls.clientAuth "none" }}
- {name: DRAGOMAN_TLS_CA, value: /etc/dragoman/tls/ca.crt}
{{- end }}
{{- end }}
{{- if .Values.console.tokenSecret }}
- {name: DRAGOMAN_ADMIN_TOKEN_FILE, value: /etc/dragoman/console/token}
{{- end }}
{{- with .Values.console.hosts }}
- {name: DRAGOMAN_ADMIN_HOSTS, value: {{ join "," . | quote }}}
{{- end }}
- {name: DRAGOMAN_ADMIN_READ_RECORDS, value: {{ .Values.console.readRecords | quote }}}
- {name: DRAGOMAN_ADMIN_WRITE, value: {{ .Values.console.write | quote }}}
{{- range $name, $value := .Values.settings }}
- {name: {{ include "dragoman.variable" $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end -}}
